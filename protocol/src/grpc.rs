//! The gRPC interface `apache.rocketmq.v2`, generated from the `.proto` files of this crate.

/// Messages, enums, and the client and server code of `MessagingService` and `Admin`. `bytes` fields are [`bytes::Bytes`].
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
pub mod v2 {
    tonic::include_proto!("apache.rocketmq.v2");
}

/// The serialized `google.protobuf.FileDescriptorSet` of the interface with its imports, as gRPC reflection serves it.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
