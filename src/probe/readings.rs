//! Turns meminfo, the root cgroup, loadavg and statvfs into what pressure is judged from, with few system calls.

use super::facts::{FileSystem, MemorySource, MemoryUse, Pids};
use super::machine::{MEMINFO, text_as};
use super::{Absent, Fact, Kept, Readings, Root, Why, attribute, memory, pids};
use crate::config::limits;

const CGROUP_V2: &str = "/sys/fs/cgroup/memory.stat";
const CGROUP_V1: &str = "/sys/fs/cgroup/memory/memory.stat";
const LOADAVG: &str = "/proc/loadavg";
/// What stays the same until the next boot, unless somebody writes to it, is read again after so many readings: an
/// hour at one reading every ten seconds.
const READINGS_PER_REFRESH: u32 = 360;

/// What pressure is judged from, read once.
pub fn readings(root: &Root, state_directory: &str) -> Readings {
    Gauges::open(root, state_directory).read()
}

/// The files of the readings, kept open.
///
/// A reading is three system calls: `pread` of the root cgroup's `memory.stat` (or of meminfo where there is no memory
/// cgroup), `pread` of loadavg, `statvfs`. Once an hour it is about ten.
#[derive(Debug)]
pub struct Gauges {
    root: Root,
    state_directory: String,
    /// As much of the state directory as exists: what is not there yet will be on the same file system.
    existing_directory: String,
    memory: MemoryFiles,
    memory_total_bytes: Fact<u64>,
    pid_limit: Fact<u64>,
    loadavg: Kept,
    /// Room for one file.
    page: Box<[u8]>,
    readings_left: u32,
}

#[derive(Debug)]
enum MemoryFiles {
    CgroupV2 { stat: Kept },
    CgroupV1 { stat: Kept },
    MemAvailable { meminfo: Kept },
}

impl Gauges {
    /// Looks where memory use is to be had; files that are missing make absent readings.
    pub fn open(root: &Root, state_directory: &str) -> Gauges {
        let mut gauges = Gauges {
            root: root.clone(),
            state_directory: state_directory.to_owned(),
            existing_directory: String::new(),
            memory: MemoryFiles::MemAvailable { meminfo: Kept::new(MEMINFO) },
            memory_total_bytes: Err(Absent::new(MEMINFO, Why::NoSuchFile)),
            pid_limit: Err(Absent::new(LOADAVG, Why::NoSuchFile)),
            loadavg: Kept::new(LOADAVG),
            page: vec![0; limits::ATTRIBUTE_BYTES].into_boxed_slice(),
            readings_left: READINGS_PER_REFRESH,
        };
        gauges.refresh();
        gauges.memory = gauges.find_memory();
        gauges
    }

    /// The readings of now.
    pub fn read(&mut self) -> Readings {
        match self.readings_left.checked_sub(1) {
            Some(left) => self.readings_left = left,
            None => self.refresh(),
        }
        Readings { memory: self.memory(), node_file_system: self.node_file_system(), pids: self.pids() }
    }

    fn refresh(&mut self) {
        self.readings_left = READINGS_PER_REFRESH;
        let total = |table: String| memory::total_bytes(&table).map_err(|why| Absent::new(MEMINFO, why));
        self.memory_total_bytes = self.root.read_table(MEMINFO).and_then(total);
        self.pid_limit = pid_limit(&self.root);
        self.find_existing_directory();
    }

    /// A container sees its own cgroup where the root's should be: only the root of version 2 lacks `memory.current`,
    /// and only the root of version 1 has `release_agent`.
    fn find_memory(&mut self) -> MemoryFiles {
        let Gauges { root, page, .. } = self;
        let mut stat = Kept::new(CGROUP_V2);
        let says = stat.read(root, page).is_ok_and(|text| memory::working_set_v2(text).is_ok());
        if says && !root.exists("/sys/fs/cgroup/memory.current") {
            return MemoryFiles::CgroupV2 { stat };
        }
        if root.exists(CGROUP_V1) && root.exists("/sys/fs/cgroup/memory/release_agent") {
            return MemoryFiles::CgroupV1 { stat: Kept::new(CGROUP_V1) };
        }
        MemoryFiles::MemAvailable { meminfo: Kept::new(MEMINFO) }
    }

    fn memory(&mut self) -> Fact<MemoryUse> {
        let Gauges { root, page, memory_total_bytes, .. } = self;
        let left_of_total = |working_set: u64, source| {
            let total = memory_total_bytes.as_ref().map_err(Absent::clone)?;
            Ok(MemoryUse { available_bytes: total.saturating_sub(working_set), source })
        };
        match &mut self.memory {
            MemoryFiles::CgroupV2 { stat } => {
                let used = memory::working_set_v2(stat.read(root, page)?);
                left_of_total(used.map_err(|why| Absent::new(CGROUP_V2, why))?, MemorySource::CgroupV2)
            }
            MemoryFiles::CgroupV1 { stat } => {
                let used = memory::working_set_v1(stat.read(root, page)?);
                left_of_total(used.map_err(|why| Absent::new(CGROUP_V1, why))?, MemorySource::CgroupV1)
            }
            MemoryFiles::MemAvailable { meminfo } => {
                let available = memory::available_bytes(meminfo.read(root, page)?);
                let available_bytes = available.map_err(|why| Absent::new(MEMINFO, why))?;
                Ok(MemoryUse { available_bytes, source: MemorySource::MemAvailable })
            }
        }
    }

    fn find_existing_directory(&mut self) {
        self.root.nearest_existing(&self.state_directory).clone_into(&mut self.existing_directory);
    }

    fn node_file_system(&mut self) -> Fact<FileSystem> {
        let found = self.root.file_system(&self.existing_directory);
        if !found.as_ref().is_err_and(|absent| absent.why == Why::NoSuchFile) {
            return found;
        }
        self.find_existing_directory();
        self.root.file_system(&self.existing_directory)
    }

    fn pids(&mut self) -> Fact<Pids> {
        let limit = self.pid_limit.clone()?;
        let used = pids::threads_in_use(self.loadavg.read(&self.root, &mut self.page)?);
        Ok(Pids { limit, used: used.map_err(|why| Absent::new(LOADAVG, why))? })
    }
}

/// SRC-10: the lower of two limits, or the one that can be read.
fn pid_limit(root: &Root) -> Fact<u64> {
    let read = |path| text_as(root, path, |text| attribute::count(&text));
    match (read("/proc/sys/kernel/pid_max"), read("/proc/sys/kernel/threads-max")) {
        (Ok(pids), Ok(threads)) => Ok(pids.min(threads)),
        (Ok(limit), Err(_)) | (Err(_), Ok(limit)) => Ok(limit),
        (Err(absent), Err(_)) => Err(absent),
    }
}
