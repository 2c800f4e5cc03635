//! What the operating system says about a process; for this one, as metrics.

use std::io;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Ticks a second of the times in `/proc/<pid>/stat`: `USER_HZ`, which Linux fixes at 100 for user space.
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads `/proc/self` at each scrape. A value that cannot be read is left out.
#[derive(Debug)]
pub(crate) struct ProcessMetrics;

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let used = usage(std::process::id()).ok();
        let mut gauge = |name: &str, help: &str, value: Option<i64>| match value {
            Some(value) => {
                ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
            }
            None => Ok(()),
        };
        gauge("process_resident_memory_bytes", "Resident memory in bytes", used.map(|used| used.resident_bytes))?;
        gauge("process_open_fds", "Open file descriptors", open_fds())?;
        if let Some(used) = used {
            let help = "User and system CPU time spent, in seconds";
            let metric = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
            ConstCounter::new(used.cpu_seconds).encode(metric)?;
        }
        Ok(())
    }
}

/// What a process has used, as the operating system counts it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// User and system CPU time since the process started, of all its threads; a hundredth of a second is the grain.
    pub cpu_seconds: f64,
    /// Resident memory now.
    pub resident_bytes: i64,
}

/// What the process `pid` has used up to now.
///
/// # Errors
/// There is no such process, or it may not be looked at.
pub fn usage(pid: u32) -> io::Result<Usage> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    let unreadable = || io::Error::other(format!("/proc/{pid} is not as expected"));
    let cpu_seconds = cpu_seconds(&read("stat")?).ok_or_else(unreadable)?;
    // A process that has ended and waits for its parent has no memory any more.
    let resident_bytes = resident_bytes(&read("status")?).ok_or_else(unreadable)?;
    Ok(Usage { cpu_seconds, resident_bytes })
}

/// `VmRSS` of `/proc/<pid>/status`: no need to know the page size.
fn resident_bytes(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The directory that is opened for counting is not counted.
fn open_fds() -> Option<i64> {
    let count = std::fs::read_dir("/proc/self/fd").ok()?.count();
    i64::try_from(count.saturating_sub(1)).ok()
}

/// User plus system time of a `/proc/<pid>/stat` line.
fn cpu_seconds(stat: &str) -> Option<f64> {
    // The command name is in parentheses and may hold anything, spaces and parentheses too: count from the last one.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user.saturating_add(system)) as f64 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_after_the_name() {
        let line = "42 (a ) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 150 0 0 20 0 3 0 100 1000 50";
        assert_eq!(cpu_seconds(line), Some(4.0));
        assert_eq!(cpu_seconds("42 (short) S 1"), None);
        assert_eq!(cpu_seconds(""), None);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(resident_bytes("Name:\ta\nVmRSS:\t    2048 kB\nThreads:\t1\n"), Some(2 * 1024 * 1024));
        assert_eq!(resident_bytes("Name:\ta\nState:\tZ (zombie)\n"), None);
    }

    #[test]
    fn this_process_has_memory_and_files() {
        assert!(usage(std::process::id()).is_ok_and(|used| used.resident_bytes > 100_000));
        assert!(usage(0).is_err());
        let _file = std::fs::File::open("/proc/self/stat").expect("a file");
        assert!(open_fds().is_some_and(|open| open >= 4), "three standard streams and the file");
    }
}
