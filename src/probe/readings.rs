//! Turns meminfo, the root cgroup, loadavg and statvfs into what pressure is judged from, with few system calls.

use super::facts::{
    Absent, Fact, FileSystem, Health, KernelPlaces, Machine, MemorySource, MemoryUse, Pids, Readings, Why, first_known,
};
use super::health::HealthFiles;
use super::kernel_log::KernelLogFiles;
use super::memory::MEMINFO;
use super::mounts::{MOUNTINFO, MountFiles, MountStates};
use super::root::{OpenFile, Root};
use super::{machine, memory, pids, resources};
use crate::config::settings::ExtendedResources;
use crate::config::text_map::TextMap;
use crate::config::{Settings, limits};
use crate::time::{Every, Up};

const CGROUP_V2: &str = "/sys/fs/cgroup/memory.stat";
const CGROUP_V1: &str = "/sys/fs/cgroup/memory/memory.stat";
const LOADAVG: &str = "/proc/loadavg";

/// What the settings ask of each look at the board.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// Whether a threshold asks for [`Readings::pids`].
    pub pids: bool,
    /// Whether the firmware is to be asked if it slows the board down.
    pub firmware: bool,
    pub extended_resources: ExtendedResources,
    /// The socket of a container runtime.
    pub container_runtime: Option<String>,
    /// Whether labels are to say what the board is and has.
    pub features: bool,
    /// They are to be read anew with the look that comes.
    pub features_anew: bool,
    /// How many of its images are to be told of.
    pub most_images: usize,
    /// What it is to be told of the addresses of pods, with the look that comes.
    pub pod_cidr: Option<String>,
}

impl Asked {
    pub fn by(settings: &Settings) -> Asked {
        Asked {
            pids: settings.judges_pids(),
            firmware: settings.asks_firmware(),
            extended_resources: settings.extended_resources.clone(),
            container_runtime: settings.container_runtime_endpoint.clone(),
            features: settings.feature_labels,
            features_anew: true,
            most_images: settings.node_status_max_images as usize,
            pod_cidr: None,
        }
    }
}

/// The file system of the state directory, and whether a later look at it may never come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDisk {
    pub file_system: Fact<FileSystem>,
    pub may_hang: bool,
    /// Without symbolic links; `None`: not looked for.
    pub real_path: Option<String>,
}

/// What a look at the board finds, asked or not.
pub fn readings(root: &Root, settings: &Settings) -> Readings {
    let asked = Asked { pids: true, ..Asked::by(settings) };
    let disk = state_disk(root, &settings.state_directory, true);
    let readings = ReadingFiles::open(root, Up::BOOT).read(disk, None, &asked, Up::BOOT);
    let kernel_log = settings.kernel_events.then(|| KernelLogFiles::new(KernelPlaces::default()));
    let mut sensors = HealthFiles::new(root).with_log(kernel_log);
    sensors.ask_firmware(asked.firmware);
    Readings { health: sensors.read(Up::BOOT), ..readings }
}

/// The file system of as much of the state directory as exists: what is not there yet will be on the same. On some file
/// systems this may take for ever; whether on this one, and where it is, is only looked for when `is_new`.
pub fn state_disk(root: &Root, state_directory: &str, is_new: bool) -> StateDisk {
    let mut file_system = root.file_system(state_directory);
    if file_system.as_ref().is_err_and(|absent| absent.why == Why::NoSuchFile) {
        file_system = root.file_system(root.nearest_existing(state_directory));
    }
    let found = is_new.then(|| root.nearest_existing(state_directory));
    let may_hang = found.is_some_and(|found| root.may_hang(found));
    StateDisk { file_system, may_hang, real_path: found.and_then(|found| root.real_path(found)) }
}

/// The file system that a runtime keeps its images in. Asked in the loop itself: no runtime keeps them on a network.
pub fn image_file_system(root: &Root, path: &str) -> Fact<FileSystem> {
    root.file_system(path)
}

/// The files of the readings, kept open.
///
/// A reading is two system calls: `pread` of the root cgroup's `memory.stat` (or of meminfo where that says nothing), and
/// `statvfs` of the disk. Where PIDs are judged it is three more, four for each folder in which extended resources are counted,
/// once a minute two `pread` for the mounts (four in a mount namespace of its own), once in ten minutes one for the list of CPUs, and once an hour about ten.
#[derive(Debug)]
pub struct ReadingFiles {
    root: Root,
    /// `memory.stat` of the root cgroup, where there is one.
    cgroup: Option<(OpenFile, MemorySource)>,
    meminfo: OpenFile,
    memory_total_bytes: Fact<u64>,
    pid_limits: [OpenFile; 2],
    loadavg: OpenFile,
    cpus: Cpus,
    /// An upgrade may change the system's name.
    upgrades: Every,
    /// Where the state directory is, as soon as that is known.
    state_path: Option<String>,
    mounts: Fact<MountFiles>,
    mount_states: Fact<MountStates>,
    /// Room for one file.
    page: Box<[u8]>,
    /// What stays the same until the next boot, unless somebody writes to it.
    refreshes: Every,
    /// The kernel writes the table of mounts for each reader anew.
    mount_looks: Every,
}

/// Which CPUs there are, parked ones included.
#[derive(Debug)]
struct Cpus {
    present: OpenFile,
    /// As it was when they were counted; `None`: not read yet.
    counted: Option<String>,
    /// What the last look found instead: counted by the next look that finds it too, as it may still be changing.
    changed: Option<String>,
    looks: Every,
}

impl ReadingFiles {
    /// Looks where memory use is to be had; files that are missing make absent readings.
    pub fn open(root: &Root, now: Up) -> ReadingFiles {
        let present = OpenFile::new("/sys/devices/system/cpu/present");
        let mut files = ReadingFiles {
            root: root.clone(),
            cgroup: None,
            meminfo: OpenFile::new(MEMINFO),
            memory_total_bytes: Err(Absent::new(MEMINFO, Why::NoSuchFile)),
            pid_limits: ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"].map(OpenFile::new),
            loadavg: OpenFile::new(LOADAVG),
            cpus: Cpus { present, counted: None, changed: None, looks: Every::TEN_MINUTES.after(now) },
            upgrades: Every::HOUR.after(now),
            state_path: None,
            mounts: MountFiles::new(root),
            mount_states: Ok(MountStates::default()),
            page: vec![0; limits::ATTRIBUTE_BYTES].into_boxed_slice(),
            refreshes: Every::HOUR.after(now),
            mount_looks: Every::MINUTE.after(now),
        };
        files.refresh();
        files.cgroup = files.find_cgroup();
        files.cpus.have_changed(root, &mut files.page);
        files
    }

    /// The readings of now, with what [`state_disk`] said and without what [`HealthFiles`] and a container runtime do.
    /// `failed_write`: what went wrong, where one write after the other fails as on a disk that is broken.
    pub fn read(&mut self, disk: StateDisk, failed_write: Option<String>, asked: &Asked, now: Up) -> Readings {
        if self.refreshes.is_due(now) || self.memory_total_bytes.is_err() {
            self.refresh();
        }
        let is_new = disk.real_path.is_some();
        self.state_path = disk.real_path.or(self.state_path.take());
        if self.mount_looks.is_due(now) || is_new {
            self.mount_states = self.look_at_mounts();
        }
        let node_file_system = disk.file_system;
        let made_read_only = made_read_only(self.mount_states.as_ref(), failed_write);
        let pids = if asked.pids { self.pids() } else { Err(Absent::new(LOADAVG, Why::Unasked)) };
        let extended_resources = resources::count(&self.root, &asked.extended_resources);
        let (container_runtime, image_file_system, health) = (None, None, Health::default());
        Readings {
            memory: self.memory(),
            node_file_system,
            made_read_only,
            pids,
            extended_resources,
            unhealthy_devices: TextMap::new(),
            container_runtime,
            image_file_system,
            health,
        }
    }

    /// Counts `machine` again where what was found at the start holds no longer: other CPUs are there, or a size could not
    /// be read; once an hour its system may have been upgraded. Answers whether it is another machine now.
    pub fn recount(&mut self, machine: &mut Machine, now: Up) -> bool {
        // What has changed once is looked at again with the next look.
        let is_due = self.cpus.looks.is_due(now) || self.cpus.changed.is_some();
        let have_changed = is_due && self.cpus.have_changed(&self.root, &mut self.page);
        let is_upgraded = self.upgrades.is_due(now) && self.is_upgraded(machine);
        if !have_changed && machine.cpu_count.is_ok() && machine.memory_total_bytes.is_ok() {
            return is_upgraded;
        }
        let before = machine.clone();
        let (cpu_count, memory_total_bytes) = machine::sizes(&self.root);
        if cpu_count.is_ok() || machine.cpu_count.is_err() {
            machine.cpu_count = cpu_count;
        }
        if machine.memory_total_bytes.is_err() {
            machine.memory_total_bytes = memory_total_bytes;
        }
        is_upgraded || *machine != before
    }

    /// VER-1: a kubelet reads this for every report.
    fn is_upgraded(&self, machine: &mut Machine) -> bool {
        let found = machine::os_image(&self.root);
        let is_other = found.is_ok() && found != machine.os_image;
        if is_other {
            machine.os_image = found;
        }
        is_other
    }

    fn look_at_mounts(&mut self) -> Fact<MountStates> {
        let unknown = || Why::Malformed("which mount holds the state directory is not known".to_owned());
        let path = self.state_path.as_deref().ok_or_else(|| Absent::new(MOUNTINFO, unknown()))?;
        self.mounts.as_mut().map_err(|absent| absent.clone())?.look(&self.root, &mut self.page, path)
    }

    fn refresh(&mut self) {
        let total = |table: String| memory::total_bytes(&table).map_err(|why| Absent::new(MEMINFO, why));
        self.memory_total_bytes = self.root.read_table(MEMINFO).and_then(total);
    }

    /// A container sees its own cgroup where the root's should be: only the root of version 2 lacks `memory.current`,
    /// and only the root of version 1 has `release_agent`.
    fn find_cgroup(&mut self) -> Option<(OpenFile, MemorySource)> {
        let ReadingFiles { root, page, .. } = self;
        let is_v2 = !root.exists("/sys/fs/cgroup/memory.current");
        let is_v1 = root.exists("/sys/fs/cgroup/memory/release_agent");
        let places = [(is_v2, CGROUP_V2, MemorySource::CgroupV2), (is_v1, CGROUP_V1, MemorySource::CgroupV1)];
        places.into_iter().filter(|(is_root, ..)| *is_root).find_map(|(_, path, source)| {
            let mut stat = OpenFile::new(path);
            working_set(&mut stat, source, root, page).is_ok().then_some((stat, source))
        })
    }

    /// From the cgroup; where it says nothing, from meminfo.
    fn memory(&mut self) -> Fact<MemoryUse> {
        let ReadingFiles { root, page, memory_total_bytes, cgroup, meminfo, .. } = self;
        let of_cgroup = cgroup.as_mut().map(|(stat, source)| {
            let used = working_set(stat, *source, root, page)?;
            let total = memory_total_bytes.as_ref().map_err(Absent::clone)?;
            Ok(MemoryUse { available_bytes: total.saturating_sub(used), source: *source })
        });
        let mut of_meminfo = || {
            let available = memory::available_bytes(meminfo.read(root, page)?);
            let available_bytes = available.map_err(|why| Absent::new(MEMINFO, why))?;
            Ok(MemoryUse { available_bytes, source: MemorySource::MemAvailable })
        };
        match of_cgroup {
            Some(found) => first_known(found, of_meminfo),
            None => of_meminfo(),
        }
    }

    /// SRC-10: the lower of two limits, or the one that can be read.
    fn pids(&mut self) -> Fact<Pids> {
        let ReadingFiles { root, page, pid_limits, loadavg, .. } = self;
        let [pid_max, threads_max] = pid_limits.each_mut().map(|file| file.count(root));
        let limit = match (pid_max, threads_max) {
            (Ok(pids), Ok(threads)) => pids.min(threads),
            (Ok(limit), Err(_)) | (Err(_), Ok(limit)) => limit,
            (Err(absent), Err(_)) => return Err(absent),
        };
        let used = pids::threads_in_use(loadavg.read(root, page)?);
        Ok(Pids { limit, used: used.map_err(|why| Absent::new(LOADAVG, why))? })
    }
}

/// By the tables of mounts, or by what writing led to: not every kernel says `emergency_ro`.
fn made_read_only(mounts: Result<&MountStates, &Absent>, failed_write: Option<String>) -> Fact<Option<String>> {
    match mounts {
        Ok(MountStates { made_read_only: Some(point), .. }) => Ok(Some(point.clone())),
        Ok(mounts) => Ok(failed_write.filter(|_| !mounts.state_is_protected)),
        Err(absent) => failed_write.map(Some).ok_or_else(|| absent.clone()),
    }
}

impl Cpus {
    fn have_changed(&mut self, root: &Root, page: &mut [u8]) -> bool {
        // A kernel that does not say cannot say that they have.
        let Ok(now) = self.present.read(root, page) else { return false };
        if self.counted.as_deref().is_none_or(|counted| counted == now) {
            self.counted.get_or_insert_with(|| now.to_owned());
            self.changed = None;
            return false;
        }
        let is_settled = self.changed.as_deref() == Some(now);
        self.changed = Some(now.to_owned());
        if is_settled {
            self.counted = self.changed.take();
        }
        is_settled
    }
}

fn working_set(stat: &mut OpenFile, source: MemorySource, root: &Root, page: &mut [u8]) -> Fact<u64> {
    let text = stat.read(root, page)?;
    let used = match source {
        MemorySource::CgroupV1 => memory::working_set_v1(text),
        _ => memory::working_set_v2(text),
    };
    used.map_err(|why| Absent::new(&stat.path, why))
}
