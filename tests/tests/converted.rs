//! Containers that forge writes, on the processor: what they hold does not depend on the backend.

use forge_core::reference::Cpu;
use forge_tests::converted;

#[test]
fn logits_survive_the_container() {
    converted::logits_survive_the_container(Cpu::new);
}
