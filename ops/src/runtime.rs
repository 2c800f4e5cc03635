//! The threads that requests run on.

use std::io;
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};

/// The variable that sets the number of threads, as in every program that uses tokio's defaults.
const WORKER_THREADS: &str = "TOKIO_WORKER_THREADS";

/// A runtime for a server that shares its machine with others: half as many threads as there are cores, unless the environment
/// variable `TOKIO_WORKER_THREADS` says otherwise. With a thread for each core, two servers side by side spend much of their
/// time waking one another's threads: on two cores, half as many cost a third less CPU for each message, and do more of them.
///
/// # Errors
/// The operating system gives no threads.
pub fn build() -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if std::env::var_os(WORKER_THREADS).is_none() {
        builder.worker_threads(available_parallelism()?.get().div_ceil(2));
    }
    builder.enable_all().build()
}
