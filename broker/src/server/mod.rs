//! Remoting requests: which code is answered by whom. One file per family; none of them knows sockets, except the listener.

mod ack;
mod channel;
mod clients;
mod connection;
mod counts;
mod door;
mod groups;
mod leases;
mod listener;
mod offsets;
mod pop;
mod query;
mod recall;
mod redrive;
mod reset;
mod route;
mod send;
mod topics;
mod transaction;

pub use channel::Channel;
pub use connection::Peer;
pub(crate) use listener::serve;
pub(crate) use transaction::question;

use waybill_protocol::remoting::codes::{canonical, own, request, response};
use waybill_protocol::remoting::{BodyError, Command, Header, HeaderError, JsonBody};

use crate::Broker;
use crate::error::BrokerError;

/// An answer, or why there is none of the kind that was asked for.
type Answer = Result<Command, BrokerError>;

impl From<HeaderError> for BrokerError {
    fn from(error: HeaderError) -> Self {
        Self::InvalidParameter(error.to_string())
    }
}

impl From<BodyError> for BrokerError {
    fn from(error: BodyError) -> Self {
        Self::InvalidParameter(error.to_string())
    }
}

/// Answers one request.
pub(crate) async fn dispatch(broker: &Broker, peer: &Peer, command: &Command) -> Command {
    let answer = match canonical(command.code) {
        request::SEND_MESSAGE => send::send(broker, peer, command, send::Form::LongNames).await,
        request::SEND_MESSAGE_V2 => send::send(broker, peer, command, send::Form::SingleLetters).await,
        request::SEND_BATCH_MESSAGE => send::send(broker, peer, command, send::Form::Batch).await,
        request::RECALL_MESSAGE => recall::recall(broker, command).await,
        request::CONSUMER_SEND_MSG_BACK => send::send_back(broker, command).await,
        request::END_TRANSACTION => transaction::end(broker, command).await,
        request::POP_MESSAGE => pop::pop(broker, peer, command).await,
        request::NOTIFICATION => pop::notification(broker, peer, command).await,
        request::POLLING_INFO => pop::polling_info(broker, command),
        request::ACK_MESSAGE => ack::ack(broker, command).await,
        request::BATCH_ACK_MESSAGE => ack::batch_ack(broker, command).await,
        request::CHANGE_MESSAGE_INVISIBLETIME => ack::change(broker, command).await,
        request::BATCH_CHANGE_MESSAGE_INVISIBLETIME => ack::batch_change(broker, command).await,
        request::GET_ROUTEINFO_BY_TOPIC => route::route(broker, command).await,
        request::GET_BROKER_CLUSTER_INFO => Ok(route::cluster_info(broker)),
        request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => Ok(topics::names(broker)),
        request::UPDATE_AND_CREATE_TOPIC => topics::create(broker, command).await,
        request::DELETE_TOPIC_IN_BROKER => topics::delete(broker, command).await,
        request::DELETE_TOPIC_IN_NAMESRV => Ok(ok()),
        request::GET_TOPIC_CONFIG => topics::get(broker, command),
        request::GET_ALL_TOPIC_CONFIG => Ok(topics::all(broker)),
        request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP => groups::create(broker, command).await,
        request::DELETE_SUBSCRIPTIONGROUP => groups::delete(broker, command).await,
        request::GET_SUBSCRIPTIONGROUP_CONFIG => groups::get(broker, command).await,
        request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG => Ok(groups::all(broker)),
        request::HEART_BEAT => clients::heartbeat(broker, peer, command).await,
        request::UNREGISTER_CLIENT => clients::unregister(broker, command),
        request::GET_CONSUMER_LIST_BY_GROUP => clients::consumers(broker, command),
        own::VOUCH_FOR_CLIENTS => clients::vouch(broker, command),
        request::QUERY_CONSUMER_OFFSET => offsets::query(broker, command),
        request::UPDATE_CONSUMER_OFFSET => offsets::update(broker, command).await,
        request::GET_MAX_OFFSET => offsets::bound(broker, command, offsets::Bound::Max),
        request::GET_MIN_OFFSET => offsets::bound(broker, command, offsets::Bound::Min),
        request::SEARCH_OFFSET_BY_TIMESTAMP => offsets::search(broker, command),
        request::GET_EARLIEST_MSG_STORETIME => offsets::earliest(broker, command),
        request::INVOKE_BROKER_TO_RESET_OFFSET => reset::reset(broker, command).await,
        request::GET_CONSUME_STATS => counts::consume_stats(broker, command),
        request::GET_TOPIC_STATS_INFO => counts::topic_stats(broker, command),
        request::QUERY_TOPIC_CONSUME_BY_WHO => counts::groups_of(broker, command),
        own::COUNT_LEFT => Ok(counts::left(broker)),
        own::COUNT_MESSAGES => counts::messages(broker, command),
        own::REDRIVE_DEAD_LETTERS => redrive::redrive(broker, command).await,
        request::QUERY_MESSAGE => query::by_key(broker, command).await,
        request::VIEW_MESSAGE_BY_ID => query::by_position(broker, command).await,
        own::DESCRIBE_MESSAGE => query::describe(broker, command).await,
        own::LIST_LEASES => leases::list(broker, command),
        _ => Ok(Command::response(
            response::REQUEST_CODE_NOT_SUPPORTED,
            format!(" request type {} not supported", command.code),
        )),
    };
    let answer = answer.unwrap_or_else(|error| error.to_response());
    broker.metrics.request(canonical(command.code), answer.code);
    answer.reply_to(command)
}

/// SUCCESS, with nothing to add.
fn ok() -> Command {
    Command::response(response::SUCCESS, "")
}

fn ok_with(header: &impl Header) -> Command {
    ok().with_header(header)
}

fn ok_json(body: &impl JsonBody) -> Command {
    ok().with_json(body)
}

/// A field that narrows down what is asked about. Left out it narrows nothing; empty it is a mistake, and must not stand for all.
fn wanted<'a>(command: &'a Command, name: &str) -> Result<Option<&'a str>, BrokerError> {
    match command.ext.get(name) {
        Some("") => Err(BrokerError::InvalidParameter(format!("{name} is empty; leave it out to ask about all"))),
        text => Ok(text),
    }
}

/// A queue number from the wire.
fn queue_number(queue_id: i32) -> Result<u32, BrokerError> {
    u32::try_from(queue_id).map_err(|_| BrokerError::InvalidParameter(format!("queueId[{queue_id}] is illegal")))
}
