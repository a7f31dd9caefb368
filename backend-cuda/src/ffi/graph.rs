//! Recorded graphs.

use super::{Context, Stream};
use cudarc::driver::sys::{CUgraph, CUgraphExec};
use forge_core::Result;
use std::ptr::null_mut;
use std::sync::Arc;

/// A recorded graph.
pub(crate) struct Graph {
    pub(super) context: Arc<Context>,
    pub(super) graph: CUgraph,
}

impl Graph {
    /// Makes it executable and puts it on the device.
    pub(crate) fn instantiate(&self, stream: &Stream) -> Result<GraphExec> {
        self.context.enter("record")?;
        let mut exec = null_mut();
        // SAFETY: a live graph; writes one handle.
        let code =
            unsafe { (self.context.driver.cuGraphInstantiateWithFlags)(&mut exec, self.graph, 0) };
        self.context.check("record", code)?;
        let exec = GraphExec { context: self.context.clone(), exec };
        // SAFETY: both handles are live.
        let code = unsafe { (self.context.driver.cuGraphUpload)(exec.exec, stream.stream) };
        self.context.check("record", code)?;
        Ok(exec)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if !self.graph.is_null() {
            let _ = self.context.enter("close");
            // SAFETY: ended once, destroyed once.
            unsafe { (self.context.driver.cuGraphDestroy)(self.graph) };
        }
    }
}

/// An executable graph.
pub(crate) struct GraphExec {
    context: Arc<Context>,
    exec: CUgraphExec,
}

// SAFETY: launches are serialised by the stream; see `Context`.
unsafe impl Send for GraphExec {}
// SAFETY: as above.
unsafe impl Sync for GraphExec {}

impl GraphExec {
    /// Starts it after everything on `stream`.
    pub(crate) fn launch(&self, stream: &Stream) -> Result<()> {
        self.context.enter("submit")?;
        // SAFETY: both handles are live; the buffers it touches are held by its `Program`.
        let code = unsafe { (self.context.driver.cuGraphLaunch)(self.exec, stream.stream) };
        self.context.check("submit", code)
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let _ = self.context.enter("close");
        // SAFETY: instantiated once, destroyed once; the driver waits for a launch in flight.
        unsafe { (self.context.driver.cuGraphExecDestroy)(self.exec) };
    }
}
