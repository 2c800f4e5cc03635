//! The gRPC interface `apache.rocketmq.v2`, generated from the `.proto` files of this crate.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::BufferSettings;
use tonic_prost::ProstCodec;

/// Messages, enums, and the client and server code of `MessagingService` and `Admin`. `bytes` fields are [`bytes::Bytes`].
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
pub mod v2 {
    tonic::include_proto!("apache.rocketmq.v2");
}

/// The serialized `google.protobuf.FileDescriptorSet` of the interface with its imports, as gRPC reflection serves it.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// How messages are written and read: as tonic would, but a call begins with a small buffer each way.
///
/// Most calls are acks and the like, of a few hundred bytes. Buffers of a kibibyte and more come from the slow side of the
/// system's allocator, and tonic's are eight times as large. What is larger makes its buffer grow.
#[derive(Debug)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Codec<T, U> {
    /// The first buffer of a call, in bytes.
    const BUFFER: usize = 512;
    /// Messages of a stream are handed on together until there is so much of them, in bytes: as in tonic.
    const YIELD_THRESHOLD: usize = 32 * 1024;

    fn settings() -> BufferSettings {
        BufferSettings::new(Self::BUFFER, Self::YIELD_THRESHOLD)
    }
}

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as tonic::codec::Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as tonic::codec::Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(Self::settings())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(Self::settings())
    }
}
