//! The connections of a measurement.

use futures::future::try_join_all;

use super::options::Options;
use crate::exit::Failure;
use crate::grpc::{CallError, Client, Identity, Session};
use crate::peer::Protocol;

/// Clients that are connected and known to the server.
pub(crate) struct Clients {
    clients: Vec<Client>,
    sessions: Vec<Session>,
}

impl Clients {
    /// Producers, one for each connection.
    pub(crate) async fn producers(options: &Options) -> Result<Self, Failure> {
        Self::open(options, "bench-producer", async |client: &Client| {
            Session::producer(client, &options.load.topic).await
        })
        .await
    }

    /// Simple consumers, one for each connection.
    pub(crate) async fn consumers(options: &Options) -> Result<Self, Failure> {
        let open =
            async |client: &Client| Session::consumer(client, &options.load.topic, &options.load.group, "*").await;
        Self::open(options, "bench-consumer", open).await
    }

    async fn open(
        options: &Options,
        purpose: &str,
        session: impl AsyncFn(&Client) -> Result<Session, CallError>,
    ) -> Result<Self, Failure> {
        let session = &session;
        let pairs = try_join_all((0..options.load.connections as usize).map(|number| async move {
            let client = Client::connect(&options.endpoint.endpoint, Identity::new(purpose, number)).await?;
            let session = session(&client).await?;
            Ok::<_, Failure>((client, session))
        }));
        let looked_for = |failure: Failure| failure.looking_for(&options.endpoint.endpoint, Protocol::Grpc);
        let (clients, sessions) = pairs.await.map_err(looked_for)?.into_iter().unzip();
        Ok(Self { clients, sessions })
    }

    /// The client for worker `number`: workers are dealt out over the connections.
    pub(crate) fn for_worker(&self, number: usize) -> Option<Client> {
        self.clients.get(number % self.clients.len().max(1)).cloned()
    }

    /// One client for each of `count` workers.
    pub(crate) fn dealt(&self, count: usize) -> impl Iterator<Item = Client> {
        (0..count).filter_map(|number| self.for_worker(number))
    }

    /// Says goodbye; what a server answers to that does not matter any more.
    pub(crate) async fn close(self) {
        for session in self.sessions {
            let _answer = session.close().await;
        }
    }
}
