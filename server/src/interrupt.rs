//! Ctrl-C: the first one asks the watched work to stop, any other ends the program.

use anyhow::{Context, Result};
use std::sync::atomic::{AtomicU8, Ordering};

/// Nothing is watched: the program ends at once.
const UNWATCHED: u8 = 0;
/// A [`Watch`] exists.
const WATCHED: u8 = 1;
/// It was asked to stop.
const FIRED: u8 = 2;
/// Exit status of a program that Ctrl-C ended.
pub(crate) const EXIT_STATUS: u8 = 130;

static STATE: AtomicU8 = AtomicU8::new(UNWATCHED);

/// Installs the handler. To be called once.
///
/// # Errors
/// Those of the operating system.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        let first = STATE.compare_exchange(WATCHED, FIRED, Ordering::SeqCst, Ordering::SeqCst);
        if first.is_err() {
            std::process::exit(EXIT_STATUS.into());
        }
    })
    .context("cannot install the Ctrl-C handler")
}

/// While it exists, Ctrl-C is a request to this piece of work.
pub(crate) struct Watch(());

impl Watch {
    /// Starts to watch.
    pub(crate) fn start() -> Self {
        STATE.store(WATCHED, Ordering::SeqCst);
        Self(())
    }

    /// True once Ctrl-C was pressed.
    pub(crate) fn fired(&self) -> bool {
        STATE.load(Ordering::SeqCst) == FIRED
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        STATE.store(UNWATCHED, Ordering::SeqCst);
    }
}
