//! CPU time and memory of the processes that are measured, from the operating system, and their own counters.

use std::collections::BTreeMap;

use serde::Serialize;
use waybill_ops::{clock, process};

use super::counters;
use super::options::Load;
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
    /// When the measurement began, milliseconds since the epoch.
    pub(crate) began_ms: i64,
    /// By how much the counters of the admin ports rose.
    pub(crate) counters: BTreeMap<String, f64>,
}

/// The state at the beginning of a measurement.
pub(crate) struct Before {
    servers: Vec<(u32, process::Usage)>,
    client: process::Usage,
    began_ms: i64,
    admins: Vec<String>,
    counters: BTreeMap<String, f64>,
}

impl Before {
    /// Takes the state now.
    pub(crate) async fn sample(load: &Load) -> Result<Self, Failure> {
        let counters = counters::read(&load.admins).await?;
        let servers = load.pids.iter().map(|pid| Ok((*pid, look(*pid)?))).collect::<Result<_, Failure>>()?;
        let client = look(std::process::id())?;
        Ok(Self { servers, client, began_ms: clock::now_ms(), admins: load.admins.clone(), counters })
    }

    /// What was used since.
    pub(crate) async fn until_now(&self) -> Result<Usage, Failure> {
        let servers = self.servers.iter().map(|(pid, before)| {
            let after = look(*pid)?;
            Ok(Process {
                pid: *pid,
                cpu_seconds: after.cpu_seconds - before.cpu_seconds,
                resident_bytes_before: before.resident_bytes,
                resident_bytes_after: after.resident_bytes,
            })
        });
        let servers = servers.collect::<Result<_, Failure>>()?;
        let client_cpu_seconds = look(std::process::id())?.cpu_seconds - self.client.cpu_seconds;
        let counters = counters::rise(&self.counters, counters::read(&self.admins).await?);
        Ok(Usage { servers, client_cpu_seconds, began_ms: self.began_ms, counters })
    }
}

fn look(pid: u32) -> Result<process::Usage, Failure> {
    process::usage(pid).map_err(|error| Failure::failed(format!("process {pid} cannot be measured: {error}")))
}
