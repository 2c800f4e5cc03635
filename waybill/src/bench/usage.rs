//! CPU time and memory of the processes that are measured, from the operating system.

use serde::Serialize;
use waybill_ops::process;

use crate::exit::Failure;

/// What a server process used during a measurement.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_bytes_before: i64,
    pub(crate) resident_bytes_after: i64,
}

/// What all of them used, and this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage {
    pub(crate) servers: Vec<Process>,
    pub(crate) client_cpu_seconds: f64,
}

/// The state at the beginning of a measurement.
pub(crate) struct Before {
    servers: Vec<(u32, process::Usage)>,
    client: process::Usage,
}

impl Before {
    /// Takes the state now.
    pub(crate) fn sample(pids: &[u32]) -> Result<Self, Failure> {
        let servers = pids.iter().map(|pid| Ok((*pid, look(*pid)?))).collect::<Result<_, Failure>>()?;
        Ok(Self { servers, client: look(std::process::id())? })
    }

    /// What was used since.
    pub(crate) fn until_now(&self) -> Result<Usage, Failure> {
        let servers = self.servers.iter().map(|(pid, before)| {
            let after = look(*pid)?;
            Ok(Process {
                pid: *pid,
                cpu_seconds: after.cpu_seconds - before.cpu_seconds,
                resident_bytes_before: before.resident_bytes,
                resident_bytes_after: after.resident_bytes,
            })
        });
        Ok(Usage {
            servers: servers.collect::<Result<_, Failure>>()?,
            client_cpu_seconds: look(std::process::id())?.cpu_seconds - self.client.cpu_seconds,
        })
    }
}

fn look(pid: u32) -> Result<process::Usage, Failure> {
    process::usage(pid).map_err(|error| Failure::failed(format!("process {pid} cannot be measured: {error}")))
}
