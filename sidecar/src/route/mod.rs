//! Where topics live.

use waybill_protocol::remoting::body::TopicRouteData;

/// One topic's brokers and queues, merged from all route sources.
#[derive(Clone, Debug)]
pub struct TopicRoute {
    /// Brokers and queues as on the wire.
    pub data: TopicRouteData,
}
