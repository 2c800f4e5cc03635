//! A broker on loopback.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use waybill_broker::{Broker, BrokerConfig, FlushDiskType};

/// Makes topics and groups on first use; stops when it is dropped.
pub(crate) struct BrokerRig {
    pub(crate) broker: Arc<Broker>,
    pub(crate) address: String,
    pub(crate) dir: tempfile::TempDir,
    _stops: DropGuard,
}

impl BrokerRig {
    pub(crate) async fn start() -> Self {
        Self::named("broker-a").await
    }

    pub(crate) async fn named(name: &str) -> Self {
        Self::with(|config| config.broker_name = name.into()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut BrokerConfig)) -> Self {
        Self::at("127.0.0.1:0", change).await
    }

    pub(crate) async fn at(listen: &str, change: impl FnOnce(&mut BrokerConfig)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = TcpListener::bind(listen).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut config = BrokerConfig {
            store_path_root_dir: dir.path().join("data"),
            bind_address: address.ip(),
            listen_port: address.port(),
            broker_host: address.ip().to_string(),
            admin_listen: None,
            flush_disk_type: FlushDiskType::Async,
            auto_create_topic_enable: true,
            auto_create_subscription_group: true,
            ..BrokerConfig::default()
        };
        change(&mut config);
        let broker = Broker::open(config).expect("a broker");
        let stop = CancellationToken::new();
        let (serving, stopped) = (Arc::clone(&broker), stop.clone());
        tokio::spawn(async move { serving.serve(listener, stopped).await });
        Self { broker, address: address.to_string(), dir, _stops: stop.drop_guard() }
    }
}
