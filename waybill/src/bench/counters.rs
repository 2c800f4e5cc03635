//! The counters of a program, from its admin port.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::exit::Failure;

const LIMIT: Duration = Duration::from_secs(5);
/// A page of metrics is some tens of KiB.
const PAGE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The counters of all admin ports, by name and labels. Those of the same name are added up.
pub(crate) async fn read(admins: &[String]) -> Result<BTreeMap<String, f64>, Failure> {
    let mut counters = BTreeMap::new();
    for address in admins {
        let unreadable = |why: String| Failure::unavailable(format!("no metrics at {address}: {why}"));
        let asked = tokio::time::timeout(LIMIT, ask(address)).await;
        let page = asked.map_err(|_late| unreadable(format!("no answer in {LIMIT:?}")))?;
        let page = page.map_err(|error| unreadable(error.to_string()))?;
        for (name, value) in parse(&page) {
            *counters.entry(name.to_owned()).or_default() += value;
        }
    }
    Ok(counters)
}

/// By how much each counter rose; those that did not are left out.
pub(crate) fn rise(before: &BTreeMap<String, f64>, after: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let risen = after.into_iter().map(|(name, value)| {
        let rise = value - before.get(&name).copied().unwrap_or_default();
        (name, rise)
    });
    risen.filter(|(_name, rise)| *rise > 0.0).collect()
}

/// HTTP/1.0, so that the answer ends with the connection.
async fn ask(address: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut page = String::new();
    stream.take(PAGE_BYTES_MAX).read_to_string(&mut page).await?;
    Ok(page)
}

fn parse(page: &str) -> impl Iterator<Item = (&str, f64)> {
    page.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        let counts = name.split('{').next()?.ends_with("_total");
        counts.then_some((name, value.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_told_from_all_else() {
        let page = "HTTP/1.0 200 OK\r\n\r\n# TYPE syncs counter\nsyncs_total 3\nrequests_total{code=\"1\"} 2\nsize 7\n";
        let seen: Vec<_> = parse(page).collect();
        assert_eq!(seen, [("syncs_total", 3.0), ("requests_total{code=\"1\"}", 2.0)]);
    }

    #[test]
    fn only_what_rose_is_told() {
        let before = BTreeMap::from([("a".to_owned(), 1.0), ("b".to_owned(), 2.0)]);
        let after = BTreeMap::from([("a".to_owned(), 4.0), ("b".to_owned(), 2.0), ("new".to_owned(), 5.0)]);
        assert_eq!(rise(&before, after), BTreeMap::from([("a".to_owned(), 3.0), ("new".to_owned(), 5.0)]));
    }
}
