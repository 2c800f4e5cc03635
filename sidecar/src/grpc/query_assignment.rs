//! QueryAssignment: which queues a push consumer shall read. Every consumer gets all of them: the broker shares
//! messages out, not queues.

use waybill_protocol::grpc::v2::{
    Assignment, Broker, Endpoints, MessageQueue, Permission, QueryAssignmentRequest, QueryAssignmentResponse, Resource,
};

use super::query_route::{permission, reachable};
use super::{Room, errors, errors::Problem, metadata::Caller, validate};
use crate::backend::BackendError;
use crate::limits;
use crate::namespace;
use crate::route::{MASTER, TopicRoute};

/// Stands for all queues of a broker.
const ANY_QUEUE: i32 = -1;

pub(super) async fn answer(
    room: &Room,
    _caller: &Caller,
    request: QueryAssignmentRequest,
) -> Result<QueryAssignmentResponse, Problem> {
    let topic = validate::topic(request.topic.as_ref())?;
    let group = validate::group(request.group.as_ref())?;
    let endpoints = reachable(validate::endpoints(request.endpoints)?, &room.config.get());
    let route = room.messages.route(topic).await?;
    let fifo = match room.messages.group_config(group, Some(topic)).await {
        Ok(config) => config.consume_message_orderly,
        Err(BackendError::GroupNotFound(_)) => false,
        Err(error) => return Err(error.into()),
    };
    let shown = request.topic.as_ref().map(namespace::shown).unwrap_or_default();
    let assignments = assignments(&route, &shown, &endpoints, fifo);
    if assignments.is_empty() {
        return Err(Problem::NoReadableQueue);
    }
    Ok(QueryAssignmentResponse { status: Some(errors::ok()), assignments })
}

fn assignments(route: &TopicRoute, topic: &Resource, endpoints: &Endpoints, fifo: bool) -> Vec<Assignment> {
    let mut found = Vec::new();
    for data in &route.queues {
        let permission = permission(data);
        let has_master = route
            .brokers
            .iter()
            .any(|broker| broker.broker_name == data.broker_name && broker.broker_addrs.contains_key(&MASTER));
        let readable = matches!(permission, Permission::Read | Permission::ReadWrite) && data.read_queue_nums > 0;
        if !has_master || !readable {
            continue;
        }
        let ids = if fifo { 0..data.read_queue_nums } else { ANY_QUEUE..ANY_QUEUE + 1 };
        for id in ids.take(limits::ROUTE_QUEUES.saturating_sub(found.len())) {
            let broker = Broker { name: data.broker_name.clone(), id: 0, endpoints: Some(endpoints.clone()) };
            let queue = MessageQueue {
                topic: Some(topic.clone()),
                id,
                permission: permission.into(),
                broker: Some(broker),
                accept_message_types: Vec::new(),
            };
            found.push(Assignment { message_queue: Some(queue) });
        }
    }
    found
}
