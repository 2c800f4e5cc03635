//! The wish to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Resolves when the process is asked to stop (SIGTERM from a supervisor, SIGINT from a keyboard).
///
/// The signals are caught from the call on, not only once it is waited for: call it before anybody can know that the
/// process is up. Where a handler cannot be installed, the fact is logged and that signal keeps its default effect.
/// Must be called within a tokio runtime.
pub fn shutdown_requested() -> impl Future<Output = ()> + Send {
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate()), listen(SignalKind::interrupt()));
    async move {
        tokio::select! {
            () = received(&mut terminate) => tracing::info!(signal = "SIGTERM", "asked to stop"),
            () = received(&mut interrupt) => tracing::info!(signal = "SIGINT", "asked to stop"),
        }
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
    use std::time::Duration;

    use tokio::time::timeout;

    /// How long it waits for what must come.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_signal_is_heard_that_came_before_anybody_waited() {
        let asked_to_stop = shutdown_requested();
        // Tells when the signal has arrived.
        let mut arrived = signal(SignalKind::terminate()).expect("signal handler");
        let killed = Command::new("kill").args(["-TERM", &std::process::id().to_string()]).status();
        assert!(killed.is_ok_and(|status| status.success()));
        timeout(PATIENCE, arrived.recv()).await.expect("it arrives");
        timeout(PATIENCE, asked_to_stop).await.expect("it is heard");
    }
}
