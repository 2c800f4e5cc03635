//! Many entries for several brokers, one result for each, in order.

use std::{collections::HashMap, future::Future};

use futures::{StreamExt, future::join_all, stream};

use super::error::BackendError;

/// Splits `0..count` by `key`, keeping the order within each part. Parts come in the order of their first entry.
pub(super) fn group_by<K: std::hash::Hash + Eq + Clone>(
    count: usize,
    key: impl Fn(usize) -> K,
) -> Vec<(K, Vec<usize>)> {
    let mut places: HashMap<K, usize> = HashMap::new();
    let mut groups: Vec<(K, Vec<usize>)> = Vec::new();
    for index in 0..count {
        let key = key(index);
        let place = *places.entry(key.clone()).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        if let Some((_, members)) = groups.get_mut(place) {
            members.push(index);
        }
    }
    groups
}

/// One call per entry, at most `limit` at a time. Entries are named by their number: results go back to where they
/// belong.
pub(super) async fn one_by_one<R, F: Future<Output = R>>(
    members: Vec<usize>,
    limit: usize,
    call: impl Fn(usize) -> F,
) -> Vec<(usize, R)> {
    let calls = members.into_iter().map(|index| {
        let call = call(index);
        async move { (index, call.await) }
    });
    stream::iter(calls).buffer_unordered(limit.max(1)).collect().await
}

/// Runs the parts at the same time, so that one slow broker does not hold up another, and puts the results in the order
/// of the entries.
///
/// An entry without a result, which a broker's short answer may cause, gets an error.
pub(super) async fn gather<R>(
    count: usize,
    parts: impl IntoIterator<Item = impl Future<Output = Vec<(usize, Result<R, BackendError>)>>>,
) -> Vec<Result<R, BackendError>> {
    let mut results: Vec<Option<Result<R, BackendError>>> = Vec::new();
    results.resize_with(count, || None);
    for (index, result) in join_all(parts).await.into_iter().flatten() {
        if let Some(slot) = results.get_mut(index) {
            *slot = Some(result);
        }
    }
    results.into_iter().map(|result| result.unwrap_or_else(|| Err(BackendError::unanswered_entry()))).collect()
}
