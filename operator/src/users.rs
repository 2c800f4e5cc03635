//! Watches of Users, and their controllers: one tells of each User, one writes the users of each Proxy.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future;
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::api::{Proxy, ProxyStatus, User};
use crate::build::users::concerns;
use crate::reconcile::{Context, Kind, on_proxy_users_error, on_user_error, reconcile_proxy_users, reconcile_user};
use crate::run::{Scope, controller_of, watch_over};

/// Looks after the Users of `scope`, and the users of its Proxies, until `stop`. Secrets are not watched, so that no right to list
/// them is needed: a given one that changes is read again at the next resync, or when its User changes.
pub(crate) async fn look_after_users(scope: &Scope, context: &Context, stop: &CancellationToken) {
    let pairs = scope.apis::<User>(&context.client).into_iter().zip(scope.apis::<Proxy>(&context.client));
    let controllers = pairs.map(|(users, proxies)| {
        let (telling, writing) = (controller_of(users.clone()), controller_of(proxies.clone()));
        let (known_users, known_proxies) = (telling.store(), writing.store());
        let kind = Arc::new(Kind { context: context.clone(), known: known_users.clone() });
        let noticed = Noticed::default();
        let telling = telling
            .watches(proxies, watcher::Config::default(), move |proxy| {
                if noticed.concerns_users(&proxy) { users_of(&known_users, &proxy) } else { Vec::new() }
            })
            .graceful_shutdown_on(stop.clone().cancelled_owned());
        let writing = writing
            .watches(users, watcher::Config::default(), move |user| proxies_of(&known_proxies, &user))
            .graceful_shutdown_on(stop.clone().cancelled_owned());
        future::join(
            watch_over(telling.run(reconcile_user, on_user_error, kind)),
            watch_over(writing.run(reconcile_proxy_users, on_proxy_users_error, Arc::new(context.clone()))),
        )
    });
    future::join_all(controllers).await;
}

fn users_of(known: &Store<User>, proxy: &Proxy) -> Vec<ObjectRef<User>> {
    let of = |user: &Arc<User>| user.namespace() == proxy.namespace() && concerns(user, proxy);
    known.state().iter().filter(|user| of(user)).map(|user| ObjectRef::from_obj(&**user)).collect()
}

fn proxies_of(known: &Store<Proxy>, user: &User) -> Vec<ObjectRef<Proxy>> {
    // All of the namespace: the User may have been for another one before.
    let of = |proxy: &Arc<Proxy>| proxy.namespace() == user.namespace();
    known.state().iter().filter(|proxy| of(proxy)).map(|proxy| ObjectRef::from_obj(&**proxy)).collect()
}

/// What was seen of a Proxy last: its generation and its status.
type Last = (Option<i64>, Option<ProxyStatus>);

/// What was seen of Proxies last, by namespace and name.
#[derive(Default)]
struct Noticed(Mutex<HashMap<String, Last>>);

impl Noticed {
    /// A Proxy that comes, goes or asks for something else concerns its users; what its status says does not, and it says it often. An
    /// event in which nothing is new is its end, or tells of its metadata.
    fn concerns_users(&self, proxy: &Proxy) -> bool {
        let now = (proxy.metadata.generation, proxy.status.clone());
        let key = format!("{}/{}", proxy.namespace().unwrap_or_default(), proxy.name_any());
        let before = self.0.lock().insert(key, now.clone());
        before.is_none_or(|before| before.0 != now.0 || before.1 == now.1)
    }
}
