//! The wish to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Resolves when the process is asked to stop (SIGTERM from a supervisor, SIGINT from a keyboard).
///
/// The signals are caught from the first poll on. Where a handler cannot be installed, the fact is logged and that
/// signal keeps its default effect.
pub async fn shutdown_requested() {
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate()), listen(SignalKind::interrupt()));
    tokio::select! {
        () = received(&mut terminate) => tracing::info!(signal = "SIGTERM", "asked to stop"),
        () = received(&mut interrupt) => tracing::info!(signal = "SIGINT", "asked to stop"),
    }
}

fn listen(kind: SignalKind) -> Option<Signal> {
    signal(kind).inspect_err(|error| tracing::error!(%error, ?kind, "cannot listen for the signal")).ok()
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[tokio::test]
    async fn sigterm_is_heard() {
        let waiting = tokio::spawn(shutdown_requested());
        // The handler is there once the task was polled; asking for the same signal here proves that it is installed
        // in this process and keeps the default effect away even if the task has not run yet.
        let mut guard = signal(SignalKind::terminate()).expect("signal handler");
        tokio::task::yield_now().await;
        let killed = Command::new("kill").args(["-TERM", &std::process::id().to_string()]).status();
        assert!(killed.is_ok_and(|status| status.success()));
        guard.recv().await;
        waiting.await.expect("the waiting task ends");
    }
}
