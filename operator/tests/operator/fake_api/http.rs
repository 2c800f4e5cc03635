//! Requests as kube sends them, and their answers.

use std::collections::BTreeMap;
use std::convert::Infallible;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};

use super::select::Selector;
use super::store::{Key, State};
use super::{FakeApi, apply};

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

struct Route {
    plural: String,
    namespace: Option<String>,
    name: Option<String>,
    status: bool,
    query: BTreeMap<String, String>,
}

impl Route {
    fn of(uri: &http::Uri) -> Self {
        let mut parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
        parts.drain(..if parts.first() == Some(&"api") { 2 } else { 3 });
        let namespace =
            (parts.first() == Some(&"namespaces")).then(|| parts.drain(..2).nth(1).expect("a name").to_owned());
        let mut parts = parts.into_iter().map(str::to_owned);
        let plural = parts.next().expect("a plural");
        let (name, status) = (parts.next(), parts.next().is_some());
        let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        let query = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Self { plural, namespace, name, status, query }
    }

    fn key(&self) -> Key {
        Key::named(&self.plural, self.namespace.as_deref().unwrap_or("default"), self.name.as_deref().unwrap_or(""))
    }
}

impl FakeApi {
    pub(super) async fn answer(&self, request: Request<Body>) -> Answer {
        let (head, body) = request.into_parts();
        let route = Route::of(&head.uri);
        let body = body.collect_bytes().await.expect("a body");
        let (method, path) = (head.method.as_str(), head.uri.path());
        if method != "GET" {
            self.state.lock().writes.push(format!("{method} {path}"));
        }
        if let Some(code) = self.fault(method, path) {
            return failure(code, "as the test says");
        }
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        match (method, &route.name) {
            ("GET", None) if route.query.contains_key("watch") => self.watch(&route),
            ("GET", None) => {
                let state = self.state.lock();
                let selector = Selector::of(&route.query);
                let mut items = state.list(&route.plural, route.namespace.as_deref());
                items.retain(|item| selector.takes(item));
                let meta = json!({ "resourceVersion": state.version.to_string() });
                ok(&json!({ "apiVersion": "v1", "kind": "List", "metadata": meta, "items": items }))
            }
            ("GET", Some(_)) => found(self.state.lock().get(&route.key())),
            ("POST", None) => {
                let mut object = body;
                if object["metadata"]["name"].is_null() {
                    let prefix = object["metadata"]["generateName"].as_str().unwrap_or_default().to_owned();
                    object["metadata"]["name"] = json!(format!("{prefix}{}", self.state.lock().version));
                }
                let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
                let key = Key { name, ..route.key() };
                if self.state.lock().get(&key).is_some() {
                    return failure(409, "AlreadyExists");
                }
                ok(&self.change(|state, now| state.put(key, object, now)))
            }
            ("PUT", Some(_)) => self.change(|state, now| {
                let (key, mut object) = (route.key(), body);
                match state.get(&key) {
                    None => failure(404, "NotFound"),
                    Some(before) => {
                        let version = &object["metadata"]["resourceVersion"];
                        if !version.is_null() && *version != before["metadata"]["resourceVersion"] {
                            return failure(409, "Conflict");
                        }
                        if let Some(status) = before.get("status") {
                            object["status"] = status.clone();
                        }
                        ok(&state.put(key, object, now))
                    }
                }
            }),
            ("PATCH", Some(_)) => {
                let kind = head.headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
                self.change(|state, now| patch(state, &route, kind, &body, now))
            }
            ("DELETE", Some(_)) => {
                let (key, wanted) = (route.key(), &body["preconditions"]);
                self.change(|state, now| {
                    let meta = state.get(&key).map(|object| object["metadata"].clone()).unwrap_or_default();
                    let met = |field: &str| wanted[field].is_null() || wanted[field] == meta[field];
                    if meta.is_object() && !(met("uid") && met("resourceVersion")) {
                        return failure(409, "Conflict");
                    }
                    found(state.delete(&key, now))
                })
            }
            _other => failure(405, "not in this server"),
        }
    }

    fn fault(&self, method: &str, path: &str) -> Option<u16> {
        let mut state = self.state.lock();
        let fault = state
            .faults
            .iter_mut()
            .find(|fault| fault.times > 0 && fault.method == method && path.contains(fault.path))?;
        fault.times -= 1;
        self.changed.send_modify(|changes| *changes += 1);
        Some(fault.code)
    }

    /// One line for each change, until the watches are to end.
    fn watch(&self, route: &Route) -> Answer {
        let from: u64 = route.query.get("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0);
        let epoch = {
            let state = self.state.lock();
            if from < state.forgotten {
                let gone = json!({ "type": "ERROR", "object": status(410, "Expired") });
                return streamed(stream::iter([line(&gone)]).boxed());
            }
            state.epoch
        };
        let (api, plural, namespace) = (self.clone(), route.plural.clone(), route.namespace.clone());
        let selector = Selector::of(&route.query);
        let seen = (from, api.changed.subscribe());
        let lines = stream::unfold(seen, move |(from, mut changed)| {
            let (api, plural, namespace) = (api.clone(), plural.clone(), namespace.clone());
            let selector = selector.clone();
            async move {
                loop {
                    {
                        let state = api.state.lock();
                        if state.epoch != epoch {
                            return None;
                        }
                        let next = state.history.iter().find(|change| {
                            change.version > from
                                && change.key.plural == plural
                                && namespace.as_ref().is_none_or(|namespace| *namespace == change.key.namespace)
                                && selector.takes(&change.object)
                        });
                        if let Some(change) = next {
                            let event = json!({ "type": change.kind, "object": change.object });
                            return Some((line(&event), (change.version, changed)));
                        }
                    }
                    changed.changed().await.ok()?;
                }
            }
        });
        streamed(lines.boxed())
    }
}

fn patch(state: &mut State, route: &Route, kind: &str, body: &Value, now_ms: i64) -> Answer {
    let key = route.key();
    let before = state.get(&key);
    if kind.contains("apply-patch") {
        if before.is_none() && route.status {
            return failure(404, "NotFound");
        }
        let manager = route.query.get("fieldManager").map_or("", String::as_str);
        return ok(&state.apply(&key, manager, body, route.status, now_ms));
    }
    let Some(mut object) = before else { return failure(404, "NotFound") };
    let meta = &body["metadata"]["resourceVersion"];
    if !meta.is_null() && *meta != object["metadata"]["resourceVersion"] {
        return failure(409, "Conflict");
    }
    apply::merge_patch(&mut object, body);
    ok(&state.put(key, object, now_ms))
}

fn line(event: &Value) -> Bytes {
    Bytes::from(format!("{event}\n"))
}

fn streamed(lines: stream::BoxStream<'static, Bytes>) -> Answer {
    let frames = lines.map(|line| Ok::<_, Infallible>(http_body::Frame::data(line)));
    Response::new(StreamBody::new(frames).boxed_unsync())
}

fn found(object: Option<Value>) -> Answer {
    object.map_or_else(|| failure(404, "NotFound"), |object| ok(&object))
}

fn ok(value: &Value) -> Answer {
    Response::new(Full::new(Bytes::from(value.to_string())).boxed_unsync())
}

fn failure(code: u16, reason: &str) -> Answer {
    let mut answer = ok(&status(code, reason));
    *answer.status_mut() = http::StatusCode::from_u16(code).expect("a code");
    answer
}

fn status(code: u16, reason: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason,
            "reason": reason, "code": code })
}
