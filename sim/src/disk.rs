//! A disk that tells apart what was written from what is durable.
//!
//! The files are real ones (in memory). For every sector that was written and not synced, its durable content is remembered; when
//! the power goes, chance decides for each such sector which of the two it has: so writes are torn. A sync that fails leaves
//! sectors that look written and are not, and that no later sync makes durable, as real systems do.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use waybill_broker::store::{Disk, RealDisk};

use crate::museum::Bug;
use crate::sim::Sim;

const SECTOR: u64 = 512;

/// A sector whose content is not durable.
#[derive(Debug)]
struct Sector {
    durable: Vec<u8>,
    /// The next sync writes it.
    dirty: bool,
}

#[derive(Debug, Default)]
struct State {
    /// By number of the file, kept open.
    files: BTreeMap<u64, (File, BTreeMap<u64, Sector>)>,
    fail_next_sync: bool,
    /// Syncs take long.
    slow: bool,
    /// There is no room for a new segment of the log.
    full: bool,
    /// A segment was refused because of that.
    refused: bool,
    /// Told when a sync begins, which then never ends.
    stop_at_sync: Option<Arc<Notify>>,
}

/// The disk of one broker.
pub struct SimDisk {
    sim: Arc<Sim>,
    name: String,
    state: Mutex<State>,
    bug: Option<Bug>,
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimDisk").field("name", &self.name).finish_non_exhaustive()
    }
}

impl SimDisk {
    /// A disk that does what it says, unless the bug is one of syncs.
    #[must_use]
    pub fn new(sim: &Arc<Sim>, name: &str, bug: Option<Bug>) -> Self {
        Self { sim: sim.clone(), name: name.to_owned(), state: Mutex::default(), bug }
    }

    /// The next sync fails.
    pub fn fail_next_sync(&self) {
        self.state.lock().fail_next_sync = true;
    }

    /// There is no room any more, or there is again. What is reserved already can be written.
    pub fn fill(&self, full: bool) {
        let mut state = self.state.lock();
        (state.full, state.refused) = (full, false);
    }

    /// Whether somebody was refused for lack of room.
    #[must_use]
    pub fn has_refused(&self) -> bool {
        self.state.lock().refused
    }

    /// Whether there is no room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.state.lock().full
    }

    /// Syncs take long from now on, or no longer.
    pub fn slow_down(&self, slow: bool) {
        self.state.lock().slow = slow;
    }

    /// Whether syncs take long.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.state.lock().slow
    }

    /// Waits until something is written and about to be synced. That sync fails; the machine is to be stopped there.
    pub async fn written_not_synced(&self) {
        let written = Arc::new(Notify::new());
        self.state.lock().stop_at_sync = Some(written.clone());
        written.notified().await;
    }

    /// No sync fails any more.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        (state.fail_next_sync, state.stop_at_sync) = (false, None);
    }

    /// The power goes: what is not durable is there, sector by sector, or not.
    pub fn cut_power(&self) {
        let mut state = self.state.lock();
        let (mut kept, mut lost) = (0, 0);
        for (file, sectors) in std::mem::take(&mut state.files).into_values() {
            for (number, sector) in sectors {
                if self.sim.dice().chance(500) {
                    kept += 1;
                    continue;
                }
                lost += 1;
                file.write_all_at(&sector.durable, number * SECTOR).expect("a file in memory");
            }
        }
        self.sim.say(&self.name, format_args!("POWER CUT sectors kept={kept} lost={lost}"));
    }
}

impl Disk for SimDisk {
    fn write_at(&self, file: &File, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let mut state = self.state.lock();
        let (_, sectors) = match state.files.entry(file.metadata()?.ino()) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => new.insert((file.try_clone()?, BTreeMap::new())),
        };
        let end = offset + bytes.len() as u64;
        for number in offset / SECTOR..end.div_ceil(SECTOR) {
            if let Some(sector) = sectors.get_mut(&number) {
                sector.dirty = true;
                continue;
            }
            let mut durable = vec![0; SECTOR as usize];
            let mut read = 0;
            while read < durable.len() {
                match file.read_at(&mut durable[read..], number * SECTOR + read as u64)? {
                    0 => break,
                    more => read += more,
                }
            }
            durable.truncate(read);
            sectors.insert(number, Sector { durable, dirty: true });
        }
        file.write_all_at(&bytes, offset)?;
        Ok(bytes.len())
    }

    fn allocate(&self, file: &File, size: u64) -> io::Result<()> {
        if self.is_full() {
            self.state.lock().refused = true;
            self.sim.audit().note("full_disks");
            return Err(io::ErrorKind::StorageFull.into());
        }
        RealDisk.allocate(file, size)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Some(stop) = state.stop_at_sync.take() {
            stop.notify_one();
            return Err(io::Error::other("stopped"));
        }
        let fails = std::mem::take(&mut state.fail_next_sync);
        let Some((_, sectors)) = state.files.get_mut(&file.metadata()?.ino()) else { return Ok(()) };
        if fails {
            for sector in sectors.values_mut() {
                sector.dirty = false;
            }
            // Some made it all the same.
            let mut made: Vec<u64> = sectors.keys().copied().collect();
            made.retain(|_| self.sim.dice().chance(500));
            for number in made {
                sectors.remove(&number);
            }
            drop(state);
            self.sim.say(&self.name, format_args!("SYNC FAILED"));
            if self.bug == Some(Bug::FailedSyncIgnored) {
                return Ok(());
            }
            return Err(io::Error::other("simulated"));
        }
        if self.bug != Some(Bug::AnsweredBeforeDurable) {
            sectors.retain(|_, sector| !sector.dirty);
        }
        Ok(())
    }
}
