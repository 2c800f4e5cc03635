//! Commands end when they are told to.

use tokio::signal::unix::{SignalKind, signal};

/// The exit code of a program that a signal ended is this and the signal's number, as shells have it.
const BY_SIGNAL: i32 = 128;

/// Ends the process at once at SIGTERM and Ctrl-C. Elsewhere the kernel does that by itself, but not for the first process of a container,
/// which a signal does nothing to unless it asks for it. For commands that have nothing to bring to an end. Must be called within a runtime.
pub(crate) fn at_once() {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        // Where it cannot be caught, it does what it would have done.
        let Ok(mut told) = signal(kind) else { continue };
        tokio::spawn(async move {
            if told.recv().await.is_some() {
                // Not by way of the runtime: a command may be reading from a pipe.
                std::process::exit(BY_SIGNAL + kind.as_raw_value());
            }
        });
    }
}
