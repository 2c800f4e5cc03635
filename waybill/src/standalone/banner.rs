//! What is said once everything runs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Addresses, reachable};
use crate::exit::Failure;
use crate::output::{self, Format};

/// A running standalone Waybill, for people and for programs that started it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Running {
    endpoint: SocketAddr,
    broker: SocketAddr,
    admin: SocketAddr,
    data_dir: PathBuf,
    flush: &'static str,
    auto_create: bool,
    pid: u32,
}

impl Running {
    pub(super) fn new(addresses: &Addresses, data_dir: &Path, flush_sync: bool, auto_create: bool) -> Self {
        Self {
            endpoint: reachable(addresses.clients),
            broker: reachable(addresses.broker),
            admin: reachable(addresses.admin),
            data_dir: std::path::absolute(data_dir).unwrap_or_else(|_error| data_dir.to_owned()),
            flush: if flush_sync { "sync" } else { "async" },
            auto_create,
            pid: std::process::id(),
        }
    }

    /// Programs read one line: it is there when everything is ready.
    pub(super) fn print(&self, format: Format) -> Result<(), Failure> {
        match format {
            Format::Text => output::write(&self.text()),
            Format::Json => {
                let json = serde_json::to_string(self).map_err(|error| Failure::failed(error.to_string()))?;
                output::write(&format!("{json}\n"))
            }
        }
    }

    fn text(&self) -> String {
        let Self { endpoint, broker, admin, .. } = self;
        let flush = match self.flush {
            "sync" => "a send is answered when the message is on disk",
            _async => "a send is answered when the operating system has the message",
        };
        let names = match self.auto_create {
            true => "Topics and consumer groups are created on first use.",
            false => "Create topics and groups first: waybill topic create, waybill group create.",
        };
        format!(
            "\
Waybill is running; Ctrl-C stops it.

  clients connect to  {endpoint}  (gRPC, plain text or TLS)
  broker              {broker}  (remoting; for waybill topic, group, lease)
  health, metrics     http://{admin}/readyz, /metrics, /config
  messages are in     {dir}  ({flush})

{names} To connect, in

  Java    ClientConfiguration.newBuilder().setEndpoints(\"{endpoint}\").enableSsl(false).build()
  Python  ClientConfiguration(\"{endpoint}\", Credentials())
  Node    new Producer({{ endpoints: '{endpoint}', namespace: '', sslEnabled: false }})
  Go      rmq.NewProducer(&rmq.Config{{Endpoint: \"{endpoint}\", Credentials: &credentials.SessionCredentials{{}}}})
  Rust    client_option.set_access_url(\"{endpoint}\"); client_option.set_enable_tls(false)
          in Cargo.toml also: time = {{ version = \"0.3\", features = [\"local-offset\"] }}
  C++     Configuration::newBuilder().withEndpoints(\"{endpoint}\").withSsl(false).build()
  C#      new ClientConfig.Builder().SetEndpoints(\"{endpoint}\").EnableSsl(false).Build()

By hand, in another terminal:

  waybill message send --endpoint {endpoint} --topic hello --body 'hello, world'
  waybill message receive --endpoint {endpoint} --topic hello --group readers --ack
",
            dir = self.data_dir.display(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(listen: &str) -> Running {
        let address = listen.parse().expect("address");
        let addresses = Addresses { clients: address, broker: address, admin: address };
        Running::new(&addresses, Path::new("data"), true, true)
    }

    #[test]
    fn shows_an_address_that_can_be_used() {
        assert!(running("0.0.0.0:8081").text().contains("setEndpoints(\"127.0.0.1:8081\")"));
        assert!(running("[::]:8081").text().contains("setEndpoints(\"127.0.0.1:8081\")"));
        assert!(running("10.1.2.3:8081").text().contains("setEndpoints(\"10.1.2.3:8081\")"));
    }

    #[test]
    fn programs_get_every_address() {
        let json = serde_json::to_value(running("127.0.0.1:1")).expect("JSON");
        for key in ["endpoint", "broker", "admin", "dataDir", "pid"] {
            assert!(json.get(key).is_some(), "{key} is missing in {json}");
        }
        assert!(json["dataDir"].as_str().is_some_and(|path| path.starts_with('/')));
    }
}
