//! All gRPC services of a sidecar, ready to be served.

use std::time::Duration;

use tonic::transport::{Server, server::Router};
use tonic_health::server::HealthReporter;
use waybill_protocol::grpc::{FILE_DESCRIPTOR_SET, v2::messaging_service_server::MessagingServiceServer};

use super::Messaging;
use crate::config::Config;
use crate::limits;

/// How long a client may take to answer a ping of its connection.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// The name of the messaging service, as health checks ask for it.
pub const SERVICE: &str = "apache.rocketmq.v2.MessagingService";

/// What [`router`] makes.
pub struct Served {
    /// Takes connections.
    pub router: Router,
    /// What the health service says; it begins with "serving".
    pub health: HealthReporter,
}

/// The messaging service, the health service, and reflection (v1 and v1alpha, which tools still ask for).
///
/// # Errors
/// The descriptors that are built into the program cannot be read.
pub async fn router(messaging: Messaging, config: &Config) -> Result<Served, tonic_reflection::server::Error> {
    let number = |value: i64| usize::try_from(value).unwrap_or_default();
    let inbound = number(config.grpc_max_inbound_message_size);
    let messaging = MessagingServiceServer::new(messaging)
        .max_decoding_message_size(inbound)
        // What goes out is bounded by what a pop may bring; there is no client that could be hurt by a limit of ours.
        .max_encoding_message_size(usize::MAX);
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_service_status(SERVICE, tonic_health::ServingStatus::Serving).await;
    let router = Server::builder()
        .max_concurrent_streams(u32::try_from(config.grpc_max_concurrent_calls_per_connection).ok())
        .initial_stream_window_size(limits::HTTP2_STREAM_WINDOW)
        .initial_connection_window_size(limits::HTTP2_CONNECTION_WINDOW)
        .http2_max_header_list_size(limits::HTTP2_HEADER_BYTES)
        .http2_keepalive_interval(u64::try_from(config.grpc_client_idle_time_ms).ok().map(Duration::from_millis))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .add_service(messaging)
        .add_service(health_service)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?);
    Ok(Served { router, health })
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name(SERVICE)
        .with_service_name("grpc.health.v1.Health")
}
