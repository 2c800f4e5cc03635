//! Access control: who calls, and what that user may do.
//!
//! The signature ([`Signed`]), the users ([`Users`]) and their permissions (in `rules`) are pure. [`Access`] puts them together with the
//! file, which is read again when it changes, and with what is counted. Nothing is remembered of a caller: each call proves anew who it
//! is, which costs about a microsecond, so a changed file counts at once. What lasts (telemetry streams, receives that wait)
//! ends when its user may no longer have it: [`Access::revoked`].

mod metrics;
mod refusal;
mod rules;
mod secret;
mod signature;
#[cfg(test)]
mod tests;
mod users;

use std::future::pending;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;
use waybill_ops::config::{ConfigError, Live};

use self::metrics::Metrics;
pub(crate) use self::secret::SecretKey;
pub use self::{
    refusal::Refusal,
    rules::{Action, Decision, Need, Permission, Resource},
    signature::{Signed, authorization},
    users::{User, Users, mistake},
};
use crate::config::Config;

/// What a caller has shown: nothing where nobody is asked, or who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass(Option<Signed>);

/// Lets callers in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Access {
    /// None: everybody is let in, to everything.
    users: Option<Arc<Live<Users>>>,
    config: Arc<Live<Config>>,
    metrics: Metrics,
}

impl Access {
    /// As the configuration says now. Whether callers are asked who they are does not change any more; what the users may do does.
    ///
    /// # Errors
    /// They are to be asked, and the file with the users cannot be used.
    pub fn new(config: Arc<Live<Config>>) -> Result<Self, ConfigError> {
        let now = config.get();
        let users = if now.authentication_enabled {
            Some(Arc::new(Live::load_adjusted(&now.users_file_path, Users::index)?))
        } else {
            None
        };
        Ok(Self { users, config, metrics: Metrics::default() })
    }

    /// Whether callers are asked who they are.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.users.is_some()
    }

    /// Who calls, by the headers `authorization` and `x-mq-date-time`. Nobody is asked where access control is off.
    ///
    /// # Errors
    /// The caller does not prove to be a user.
    pub fn authenticate(&self, authorization: Option<&str>, date_time: Option<&str>) -> Result<Pass, Refusal> {
        let Some(users) = &self.users else { return Ok(Pass::default()) };
        let known = Signed::read(authorization, date_time).and_then(|signed| {
            users.get().authenticate(&signed)?;
            Ok(Pass(Some(signed)))
        });
        known.inspect_err(|refusal| self.metrics.refused(refusal))
    }

    /// Whether the caller may do all that is needed.
    ///
    /// # Errors
    /// The first need that is not met.
    pub fn authorize<'a>(&self, pass: &Pass, needs: impl IntoIterator<Item = Need<'a>>) -> Result<(), Refusal> {
        self.allowed(pass, needs).inspect_err(|refusal| self.metrics.refused(refusal))
    }

    /// Waits until the caller is no user any more, or may no longer do what it needs. For ever where access control is off.
    pub async fn revoked<'a, N>(&self, pass: &Pass, needs: N) -> Refusal
    where
        N: IntoIterator<Item = Need<'a>> + Clone,
    {
        let (Some(users), Some(signed)) = (&self.users, &pass.0) else { return pending().await };
        let (mut users_changed, mut config_changed) = (users.subscribe(), self.config.subscribe());
        loop {
            let still = users.get().authenticate(signed).map(drop).and_then(|()| self.allowed(pass, needs.clone()));
            if let Err(refusal) = still {
                self.metrics.refused(&refusal);
                return refusal;
            }
            // Neither sender ends before this does.
            tokio::select! {
                _users = users_changed.changed() => {}
                _config = config_changed.changed() => {}
            }
        }
    }

    fn allowed<'a>(&self, pass: &Pass, needs: impl IntoIterator<Item = Need<'a>>) -> Result<(), Refusal> {
        let (Some(users), true) = (&self.users, self.config.get().authorization_enabled) else { return Ok(()) };
        let signed = pass.0.as_ref().ok_or(Refusal::Unsigned)?;
        let users = users.get();
        let user = users.get(signed.access_key()).ok_or(Refusal::UnknownAccessKey)?;
        match needs.into_iter().find(|need| !user.may(*need)) {
            Some(need) => Err(forbidden(signed.access_key(), need)),
            None => Ok(()),
        }
    }

    /// Follows the file with the users until `stop`.
    pub async fn watch(self, stop: CancellationToken) {
        match self.users {
            Some(users) => users.watch(stop).await,
            None => stop.cancelled().await,
        }
    }

    /// What `/config` shows of the users: which state of the file is in force, and what is wrong with it as it is now. Null where
    /// nobody is asked.
    #[must_use]
    pub fn shown(&self) -> Json {
        let Some(users) = &self.users else { return Json::Null };
        let (now, status) = (users.get(), users.status());
        json!({
            "revision": now.revision(),
            "count": now.count(),
            "generation": status.generation,
            "error": status.error,
        })
    }

    /// Adds what is counted to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
        if let Some(users) = &self.users {
            users.register_as(registry, metrics::OF_THE_FILE);
        }
    }
}

fn forbidden(access_key: &str, need: Need<'_>) -> Refusal {
    let Need { resource, any_of } = need;
    let what = match (resource, any_of) {
        (_, [Action::Pub]) => format!("send to {resource}"),
        (Resource::Group(_), _) => format!("consume in {resource}"),
        (_, [Action::Sub]) => format!("consume {resource}"),
        _ => format!("send to or consume {resource}"),
    };
    Refusal::Forbidden { access_key: access_key.to_owned(), what }
}
