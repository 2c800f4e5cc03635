//! Whether the brokers of a Broker are spoken with by TLS, and whom to believe there.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use waybill_ops::tls::{Connector, Trust};

use super::{ApiError, Context, while_doing};
use crate::admin::Way;
use crate::api::Broker;
use crate::build::Authorities;

/// What of the Secret tells whom to believe.
const AUTHORITIES: &str = "ca.crt";

/// How the brokers of `broker` are spoken with.
pub(super) async fn way(broker: &Broker, context: &Context) -> Result<Way, ApiError> {
    let tls = match authorities(broker, context).await? {
        None => Ok(None),
        Some(Authorities::Missing(reason)) => Err(reason),
        Some(Authorities::Anybody) => connector(&Trust::Anybody).map(Some),
        Some(Authorities::These(text)) => connector(&Trust::Authorities(text.into_bytes())).map(Some),
    };
    Ok(Way { limits: context.limits, tls })
}

/// Whose signature the certificates of the brokers have. None: they do not speak TLS yet, or are not to any more. The Secret is not
/// watched, so that no right to list them is needed: a new authority is noticed when something else is, or at the next resync.
pub(super) async fn authorities(broker: &Broker, context: &Context) -> Result<Option<Authorities>, ApiError> {
    let all_speak = broker.status.as_ref().is_some_and(|status| status.tls);
    let Some(tls) = broker.spec.tls.as_ref().filter(|_| all_speak) else { return Ok(None) };
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &broker.namespace().unwrap_or_default());
    let name = &tls.secret_name;
    let secret = api.get_opt(name).await.map_err(while_doing("read the Secret of a Broker"))?;
    let Some(secret) = secret else {
        // Not to be taken for one without authorities: whoever believed them before would believe everybody.
        return Ok(Some(Authorities::Missing(format!(
            "there is no Secret {name}, which spec.tls of the Broker names"
        ))));
    };
    let Some(text) = secret.data.as_ref().and_then(|data| data.get(AUTHORITIES)) else {
        return Ok(Some(Authorities::Anybody));
    };
    let unusable = |reason: String| Authorities::Missing(format!("{AUTHORITIES} of the Secret {name}: {reason}"));
    Ok(Some(match String::from_utf8(text.0.clone()) {
        Err(_binary) => unusable("it is no text".to_owned()),
        Ok(text) => match connector(&Trust::Authorities(text.clone().into_bytes())) {
            Err(reason) => unusable(reason),
            Ok(_usable) => Authorities::These(text),
        },
    }))
}

fn connector(trust: &Trust) -> Result<Connector, String> {
    Connector::new(trust).map_err(|error| error.to_string())
}
