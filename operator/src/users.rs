//! Watches of Users, and their controllers: one tells of each User, one writes the users of each Proxy.

use std::sync::Arc;

use futures::future;
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use tokio_util::sync::CancellationToken;

use crate::api::{Proxy, Told, User};
use crate::build::users::concerns;
use crate::noticed::{Noticed, those};
use crate::reconcile::{
    Context, Kind, Proxies, on_proxy_users_error, on_user_error, reconcile_proxy_users, reconcile_user,
};
use crate::run::{Scope, controller_of, watch_over};

/// Looks after the Users of `scope`, and the users of its Proxies, until `stop`. Secrets are not watched, so that no right to list
/// them is needed: a given one that changes is read again at the next resync, or when its User changes.
pub(crate) async fn look_after_users(scope: &Scope, context: &Context, stop: &CancellationToken) {
    let all = Arc::new(Proxies { context: context.clone(), scope: scope.clone() });
    let pairs = scope.apis::<User>(&context.client).into_iter().zip(scope.apis::<Proxy>(&context.client));
    let controllers = pairs.map(|(users, proxies)| {
        let (telling, writing) = (controller_of(users.clone()), controller_of(proxies.clone()));
        let (known_users, known_proxies) = (telling.store(), writing.store());
        context.metrics.look_at(known_users.clone());
        let kind = Arc::new(Kind { context: context.clone(), known: known_users.clone() });
        let noticed = Noticed::default();
        let telling = telling
            .watches(proxies, watcher::Config::default(), move |proxy| {
                let concerns = noticed.concerns_others(&proxy, proxy.metadata.generation, proxy.status.clone());
                if concerns { users_of(&known_users, &proxy) } else { Vec::new() }
            })
            .graceful_shutdown_on(stop.clone().cancelled_owned());
        let writing = writing
            .watches(users, watcher::Config::default(), move |user| proxies_of(&known_proxies, &user))
            .graceful_shutdown_on(stop.clone().cancelled_owned());
        future::join(
            watch_over(telling.run(context.metrics.counted(User::KIND, reconcile_user), on_user_error, kind)),
            watch_over(writing.run(
                context.metrics.counted("ProxyUsers", reconcile_proxy_users),
                on_proxy_users_error,
                all.clone(),
            )),
        )
    });
    future::join_all(controllers).await;
}

fn users_of(known: &Store<User>, proxy: &Proxy) -> Vec<ObjectRef<User>> {
    those(known, |user| user.namespace() == proxy.namespace() && concerns(user, proxy))
}

fn proxies_of(known: &Store<Proxy>, user: &User) -> Vec<ObjectRef<Proxy>> {
    // All of the namespace: the User may have been for another one before.
    those(known, |proxy| proxy.namespace() == user.namespace())
}
