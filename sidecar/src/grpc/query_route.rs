//! QueryRoute: where a topic lives. Every broker in the answer has the endpoints that the client used, so that it goes on speaking with
//! this sidecar, or with the load balancer in front of it.

use waybill_protocol::{
    grpc::v2::{
        Broker, Endpoints, MessageQueue, MessageType, Permission, QueryRouteRequest, QueryRouteResponse, Resource,
    },
    remoting::{QueueData, TopicConfig},
};

use super::{Room, errors, errors::Problem, metadata::Caller, validate};
use crate::config::Config;
use crate::limits;
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
    let message_queues = queues(&route, topic, &endpoints, &accepted_types(&config));
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

/// The type of a topic. One that says nothing, or something this version does not know, takes normal messages: an unknown type must not
/// stop clients from starting.
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

/// One entry per queue of each broker: first those that can only be read, then only written, then both, then neither. Ids count from 0.
fn queues(route: &TopicRoute, topic: &str, endpoints: &Endpoints, types: &[i32]) -> Vec<MessageQueue> {
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
                    topic: Some(Resource { resource_namespace: String::new(), name: topic.to_owned() }),
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
