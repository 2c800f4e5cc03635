//! Injection: a webhook that gives pods with the label `waybill.dev/inject` their sidecar.
//!
//! Every operator answers the API server's questions ([`serve`]); the leader keeps certificates ([`keep_certificates`]). A pod that
//! cannot have a sidecar is let in without it, with a warning, and its Proxy says so.

mod bounds;
mod certificates;
mod keeper;
mod patch;
mod review;
mod server;

use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use certificates::Certificates;
pub use keeper::keep;
pub use patch::patch;
pub use review::answer;
pub use server::serve;

use crate::reconcile::Context;

/// How often it is looked whether certificates are due and trusted.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Where the webhook is, and how it is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// The namespace of its Service, and of the Secret.
    pub namespace: String,
    /// The name of its Service.
    pub service: String,
    /// The MutatingWebhookConfiguration that is made to trust it, if one is.
    pub configuration: Option<String>,
    /// The Secret that its certificates are kept in.
    pub secret: String,
    /// Where its certificate comes from.
    pub source: Source,
}

/// Where a certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The operator makes it.
    Own,
    /// Somebody else does, such as cert-manager: `tls.crt` and `tls.key` are in this directory, and read again when they change.
    Directory(PathBuf),
}

impl Webhook {
    /// The names that the API server may call it by.
    fn names(&self) -> Vec<String> {
        let name = format!("{}.{}.svc", self.service, self.namespace);
        vec![format!("{name}.cluster.local"), name]
    }
}

/// Makes certificates, and the API server trust them, until `stop`. Nothing, where somebody else does.
pub async fn keep_certificates(context: Context, webhook: Webhook, stop: CancellationToken) {
    if webhook.source != Source::Own {
        return stop.cancelled().await;
    }
    loop {
        if let Err(error) = keep(&context, &webhook).await {
            warn!("{error}; tried again");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}
