//! The table of the conditions that are ours.

use std::time::Duration;

use super::super::health::{Gauge, Look, Warns, looks};
use super::super::judgement::Judgement;
use super::{COUNT, Judge, Like, Row, Words};
use super::{certificate_expiring, planned_absence, readonly_filesystem, ready, unexpected_reboot};

const AT_ONCE: Duration = Duration::ZERO;
const HALF_A_MINUTE: Duration = Duration::from_secs(30);

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

/// By sensors: set and cleared when it lasts so long.
const fn board(look: Look, set_after: Duration, clear_after: Duration, warns: Warns) -> Judge {
    Judge::Board(Gauge { look, set_after, clear_after, warns })
}

/// Of a condition that is on a Node from the first time on that it is True: not every board has what it is judged from.
const NOT_THERE: Words = Words("", "", "");

/// The table. The words of True and False are a kubelet's (PRS-1..6, RDY-6), or node-problem-detector's. A kubelet knows no
/// Unknown: it judges from nothing that there is enough.
pub(in crate::node) static ROWS: [Row; COUNT] = [
    Row {
        kind: "MemoryPressure",
        judge: Judge::Known(|row, look| row.pressure(&look.pressures.memory)),
        words: [
            Words(
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
                "NodeHasInsufficientMemory",
            ),
            Words("KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"),
            Words("MemoryUnreadable", "memory cannot be read", "NodeMemoryUnreadable"),
        ],
        like: Like::Pressure,
    },
    Row {
        kind: "DiskPressure",
        judge: Judge::Known(|row, look| row.pressure(&look.pressures.disk)),
        words: [
            Words("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
            Words("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"),
            Words("DiskUnreadable", "the disk cannot be read", "NodeDiskUnreadable"),
        ],
        like: Like::Pressure,
    },
    Row {
        kind: "PIDPressure",
        judge: Judge::Known(|row, look| row.pressure(&look.pressures.pid)),
        words: [
            Words("KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"),
            Words("KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
            Words("PIDsUnreadable", "PIDs cannot be read", "NodePIDsUnreadable"),
        ],
        like: Like::Pressure,
    },
    Row {
        kind: "CertificateExpiring",
        judge: Judge::Known(certificate_expiring),
        words: [
            Words("CertificateExpiresSoon", "Client certificate expires soon", "CertificateExpiresSoon"),
            Words("CertificateIsValid", "Client certificate does not expire soon", "CertificateIsValid"),
            NOT_THERE,
        ],
        like: Like::Problem,
    },
    Row {
        kind: "MeteredBudgetLow",
        judge: Judge::Known(|_, look| Judgement::known(look.is_budget_low, None)),
        words: [
            Words("DailyBytesRunLow", "The bytes of the day run low, so what can wait is put off", "DailyBytesRunLow"),
            Words("DailyBytesSuffice", "The bytes of the day suffice", "DailyBytesSuffice"),
            NOT_THERE,
        ],
        like: Like::Problem,
    },
    Row {
        kind: "PlannedAbsence",
        judge: Judge::Known(planned_absence),
        words: [
            Words("Announced", "Absence announced", "AbsenceAnnounced"),
            Words("Present", "No absence is announced", "AbsenceOver"),
            NOT_THERE,
        ],
        like: Like::Plan,
    },
    Row {
        kind: "ReadonlyFilesystem",
        judge: Judge::Known(readonly_filesystem),
        words: [
            Words("FilesystemIsReadOnly", "Filesystem is read-only", "FilesystemIsReadOnly"),
            Words("FilesystemIsNotReadOnly", "Filesystem is not read-only", "FilesystemIsNotReadOnly"),
            Words("MountsUnreadable", "mounts cannot be read", "MountsUnreadable"),
        ],
        like: Like::Problem,
    },
    Row {
        kind: "FilesystemCorruptionProblem",
        judge: board(looks::file_system_corrupt, AT_ONCE, minutes(24 * 60), Warns::Never),
        words: [
            Words(
                "FilesystemCorruptionDetected",
                "The kernel has found errors in a file system",
                "FilesystemCorruptionDetected",
            ),
            Words("FilesystemIsOK", "No file system has had errors since the boot", "FilesystemIsOK"),
            Words("FilesystemUnreadable", "the errors of file systems cannot be read", "FilesystemUnreadable"),
        ],
        like: Like::Problem,
    },
    Row {
        kind: "KernelDeadlock",
        judge: board(looks::kernel_deadlock, AT_ONCE, minutes(60), Warns::Never),
        words: [
            Words("TaskHung", "A task has waited in the kernel for too long", "KernelDeadlock"),
            Words("KernelHasNoDeadlock", "kernel has no deadlock", "KernelHasNoDeadlock"),
            Words("KernelUnreadable", "the kernel does not say whether tasks wait for too long", "KernelUnreadable"),
        ],
        like: Like::Shared,
    },
    Row {
        kind: "XfsShutdown",
        judge: board(looks::xfs_shut_down, AT_ONCE, AT_ONCE, Warns::Never),
        words: [
            Words("XfsHasShutdown", "XFS has shutdown", "XfsHasShutdown"),
            Words("XfsHasNotShutDown", "XFS has not shutdown", "XfsHasNotShutDown"),
            Words("KernelUnreadable", "the kernel does not say whether XFS has shut down", "KernelUnreadable"),
        ],
        like: Like::Shared,
    },
    Row {
        kind: "NTPProblem",
        judge: board(looks::clock_wrong, minutes(10), minutes(1), Warns::Never),
        words: [
            Words("NTPIsDown", "Nobody keeps the clock right", "NTPIsDown"),
            Words("NTPIsUp", "The clock is kept right", "NTPIsUp"),
            Words("ClockUnreadable", "the kernel does not say whether the clock is kept right", "ClockUnreadable"),
        ],
        like: Like::Problem,
    },
    Row {
        kind: "Undervoltage",
        judge: board(looks::undervoltage, AT_ONCE, minutes(5), Warns::InADay { times: 3, event: "PowerSupplyWeak" }),
        words: [
            Words("UndervoltageDetected", "The voltage of the power supply is too low", "UndervoltageDetected"),
            Words("VoltageOK", "The voltage of the power supply is sufficient", "VoltageOK"),
            Words("VoltageUnreadable", "under-voltage cannot be read", "VoltageUnreadable"),
        ],
        like: Like::Problem,
    },
    Row {
        kind: "ThermalThrottled",
        judge: board(
            looks::thermal_throttled,
            HALF_A_MINUTE,
            minutes(5),
            Warns::OfReason { reason: looks::NEAR_CRITICAL.reason, event: "OverTemperature" },
        ),
        words: [
            Words("PassiveTripReached", "The board is too hot", "ThermalThrottled"),
            Words("TemperatureOK", "The board is not too hot", "TemperatureOK"),
            Words("TemperatureUnreadable", "the temperature cannot be read", "TemperatureUnreadable"),
        ],
        like: Like::Problem,
    },
    Row {
        kind: "StorageWearHigh",
        judge: board(looks::storage_wear_high, minutes(60), minutes(60), Warns::Never),
        words: [
            Words("LifetimeNearlyUsed", "The storage is nearly worn out", "StorageWearHigh"),
            Words("WearOK", "The storage is not worn out", "WearOK"),
            Words("WearUnreadable", "the wear of the storage cannot be read", "WearUnreadable"),
        ],
        like: Like::Problem,
    },
    Row {
        kind: "UplinkDegraded",
        judge: board(looks::uplink_degraded, AT_ONCE, minutes(15), Warns::Never),
        words: [
            Words("LinkFlapping", "The connection of the board is poor", "UplinkDegraded"),
            Words("UplinkOK", "The connection of the board is good", "UplinkOK"),
            Words("UplinkUnreadable", "the counters of the uplink cannot be read", "UplinkUnreadable"),
        ],
        like: Like::Problem,
    },
    Row {
        kind: "OnBattery",
        judge: board(looks::on_battery, HALF_A_MINUTE, minutes(1), Warns::Never),
        words: [
            Words("OnBattery", "The board runs on its battery", "OnBattery"),
            Words("OnMains", "The board does not run on its battery", "OnMains"),
            Words("PowerUnreadable", "the power supplies cannot be read", "PowerUnreadable"),
        ],
        like: Like::Problem,
    },
    Row {
        kind: "BatteryLow",
        judge: board(looks::battery_low, HALF_A_MINUTE, minutes(1), Warns::Never),
        words: [
            Words("BatteryLow", "The battery is nearly empty", "BatteryLow"),
            Words("BatteryOK", "The battery is not nearly empty", "BatteryOK"),
            Words("BatteryUnreadable", "the battery cannot be read", "BatteryUnreadable"),
        ],
        like: Like::Problem,
    },
    Row {
        kind: "UnexpectedReboot",
        judge: Judge::Known(unexpected_reboot),
        words: [
            Words("Unknown", "The board went down while nobody had shut it down", "UnexpectedReboot"),
            Words("NoUnexpectedReboot", "The board did not go down unexpectedly in 24 hours", "NoUnexpectedReboot"),
            NOT_THERE,
        ],
        like: Like::Problem,
    },
    Row {
        kind: "Ready",
        judge: Judge::Known(ready),
        words: [
            Words("KubeletReady", "kubelet is posting ready status", "NodeReady"),
            Words("KubeletNotReady", "", "NodeNotReady"),
            // Nobody but the node controller makes it Unknown.
            Words("NodeStatusUnknown", "", "NodeNotReady"),
        ],
        like: Like::Ready,
    },
];
