//! QueryRoute: where a topic lives. Every broker in the answer has the endpoints that the client used, so that it goes
//! on speaking with this sidecar, or with the load balancer in front of it.

use waybill_protocol::{
    grpc::v2::{
        Broker, Endpoints, MessageQueue, MessageType, Permission, QueryRouteRequest, QueryRouteResponse, Resource,
    },
    remoting::{QueueData, TopicConfig},
};

use super::{Room, errors, errors::Problem, metadata::Caller, validate};
use crate::config::Config;
use crate::limits;
use crate::namespace;
use crate::route::TopicRoute;

/// Permission bits of a topic on a broker.
const READ: i32 = 4;
const WRITE: i32 = 2;

pub(super) async fn answer(
    room: &Room,
    _caller: &Caller,
    request: QueryRouteRequest,
) -> Result<QueryRouteResponse, Problem> {
    let topic = validate::topic(request.topic.as_ref())?;
    let endpoints = reachable(validate::endpoints(request.endpoints)?, &room.config.get());
    let route = room.messages.route(topic).await?;
    let config = room.messages.topic_config(topic).await?;
    let shown = request.topic.as_ref().map(namespace::shown).unwrap_or_default();
    let message_queues = queues(&route, &shown, &endpoints, &accepted_types(&config));
    Ok(QueryRouteResponse { status: Some(errors::ok()), message_queues })
}

/// The client's endpoints as they shall be used from now on.
pub(super) fn reachable(mut endpoints: Endpoints, config: &Config) -> Endpoints {
    if !config.use_endpoint_port_from_request && config.grpc_server_port != 0 {
        let port = i32::try_from(config.grpc_server_port).unwrap_or_default();
        for address in &mut endpoints.addresses {
            address.port = port;
        }
    }
    endpoints
}

/// The type of a topic. One that says nothing, or something this version does not know, takes normal messages: an
/// unknown type must not stop clients from starting.
pub(super) fn topic_type(config: &TopicConfig) -> &'static str {
    const TYPES: [&str; 7] = ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "LITE", "PRIORITY"];
    let said = config.attributes.get("message.type").map_or("NORMAL", String::as_str);
    TYPES.into_iter().find(|known| *known == said).unwrap_or("NORMAL")
}

fn accepted_types(config: &TopicConfig) -> Vec<i32> {
    use MessageType::{Delay, Fifo, Normal, Transaction};
    let types = match topic_type(config) {
        "MIXED" => vec![Normal, Fifo, Delay, Transaction],
        one => vec![MessageType::from_str_name(one).unwrap_or(Normal)],
    };
    types.into_iter().map(i32::from).collect()
}

/// One entry per queue of each broker: first those that can only be read, then only written, then both, then neither.
/// Ids count from 0.
fn queues(route: &TopicRoute, topic: &Resource, endpoints: &Endpoints, types: &[i32]) -> Vec<MessageQueue> {
    let mut found = Vec::new();
    for data in &route.queues {
        let Some(broker) = route.brokers.iter().find(|broker| broker.broker_name == data.broker_name) else { continue };
        for id in broker.broker_addrs.keys() {
            let broker = Broker {
                name: data.broker_name.clone(),
                id: i32::try_from(*id).unwrap_or(i32::MAX),
                endpoints: Some(endpoints.clone()),
            };
            let permissions =
                counts(data).into_iter().flat_map(|(permission, count)| (0..count).map(move |_| permission));
            for (id, permission) in (0..).zip(permissions) {
                if found.len() == limits::ROUTE_QUEUES {
                    return found;
                }
                found.push(MessageQueue {
                    topic: Some(topic.clone()),
                    id,
                    permission: permission.into(),
                    broker: Some(broker.clone()),
                    accept_message_types: types.to_vec(),
                });
            }
        }
    }
    found
}

/// How many queues of a broker have which permission.
fn counts(data: &QueueData) -> [(Permission, i32); 4] {
    let (read, write) = (data.read_queue_nums.max(0), data.write_queue_nums.max(0));
    let (only_read, only_write, both, none) = match (data.perm & READ != 0, data.perm & WRITE != 0) {
        (true, true) => (read - read.min(write), write - read.min(write), read.min(write), 0),
        (true, false) => (read, 0, 0, 0),
        (false, true) => (0, write, 0, 0),
        (false, false) => (0, 0, 0, read.max(write).max(1)),
    };
    [
        (Permission::Read, only_read),
        (Permission::Write, only_write),
        (Permission::ReadWrite, both),
        (Permission::None, none),
    ]
}

/// What may be done with a broker's queues of a topic.
pub(super) fn permission(data: &QueueData) -> Permission {
    match (data.perm & READ != 0, data.perm & WRITE != 0) {
        (true, true) => Permission::ReadWrite,
        (true, false) => Permission::Read,
        (false, true) => Permission::Write,
        (false, false) => Permission::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waybill_protocol::remoting::{BrokerData, TopicRouteData};

    fn route(parts: &[(&str, i32, i32, i32, &[i64])]) -> TopicRoute {
        let mut data = TopicRouteData::default();
        for (name, read, write, perm, ids) in parts {
            data.queue_datas.push(QueueData {
                broker_name: (*name).into(),
                read_queue_nums: *read,
                write_queue_nums: *write,
                perm: *perm,
                ..Default::default()
            });
            let broker_addrs = ids.iter().map(|id| (*id, "h:1".to_owned())).collect();
            data.broker_datas.push(BrokerData { broker_name: (*name).into(), broker_addrs, ..Default::default() });
        }
        TopicRoute::merge([data])
    }

    fn shown(route: &TopicRoute) -> Vec<(String, i32, i32, Permission)> {
        let topic = Resource { name: "t".into(), ..Resource::default() };
        let queues = queues(route, &topic, &Endpoints::default(), &[1]);
        let show = |queue: MessageQueue| {
            let broker = queue.broker.clone().unwrap_or_default();
            (broker.name, broker.id, queue.id, queue.permission())
        };
        queues.into_iter().map(show).collect()
    }

    #[test]
    fn queues_are_counted_by_permission() {
        use Permission::{None, Read, ReadWrite, Write};
        let a = |id, permission| ("a".to_owned(), 0, id, permission);
        assert_eq!(shown(&route(&[("a", 2, 2, 6, &[0])])), [a(0, ReadWrite), a(1, ReadWrite)]);
        assert_eq!(shown(&route(&[("a", 3, 1, 7, &[0])])), [a(0, Read), a(1, Read), a(2, ReadWrite)]);
        assert_eq!(shown(&route(&[("a", 1, 2, 6, &[0])])), [a(0, Write), a(1, ReadWrite)]);
        assert_eq!(shown(&route(&[("a", 2, 1, 4, &[0])])), [a(0, Read), a(1, Read)]);
        assert_eq!(shown(&route(&[("a", 2, 1, 2, &[0])])), [a(0, Write)]);
        assert_eq!(shown(&route(&[("a", 0, 0, 0, &[0])])), [a(0, None)]);
        assert_eq!(shown(&route(&[("a", -5, i32::MIN, 6, &[0])])), []);
    }

    #[test]
    fn replicas_are_named_and_numbers_bounded() {
        let ids = |found: Vec<(String, i32, i32, Permission)>| found.into_iter().map(|q| q.1).collect::<Vec<_>>();
        assert_eq!(ids(shown(&route(&[("a", 1, 1, 6, &[0, 1])]))), [0, 1]);
        assert_eq!(shown(&route(&[("a", i32::MAX, 1, 4, &[0])])).len(), limits::ROUTE_QUEUES);
    }

    #[test]
    fn a_topic_always_accepts_something() {
        let types = |said: Option<&str>| {
            let mut config = TopicConfig::default();
            if let Some(said) = said {
                config.attributes.insert("message.type".into(), said.into());
            }
            accepted_types(&config)
        };
        assert_eq!(types(None), [1]);
        assert_eq!(types(Some("UNSPECIFIED")), [1]);
        assert_eq!(types(Some("SOMETHING_NEW")), [1]);
        assert_eq!(types(Some("FIFO")), [2]);
        assert_eq!(types(Some("MIXED")), [1, 2, 3, 4]);
        assert_eq!(types(Some("LITE")), [5]);
    }

    #[test]
    fn the_port_of_the_endpoints() {
        use waybill_protocol::grpc::v2::Address;
        let port = |config: Config| {
            let endpoints = Endpoints { scheme: 1, addresses: vec![Address { host: "h".into(), port: 80 }] };
            reachable(endpoints, &config).addresses.first().map(|address| address.port)
        };
        assert_eq!(port(Config::default()), Some(8081));
        assert_eq!(port(Config { use_endpoint_port_from_request: true, ..Config::default() }), Some(80));
        assert_eq!(port(Config { grpc_server_port: 0, ..Config::default() }), Some(80), "the configuration names none");
    }
}
