//! Which faults are planted, and what the judge says by which each is noticed.

/// Faults that the simulator must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Planted {
    /// The Lease keeps the first owner it ever had (LSE-6's bug).
    OwnerNeverRefreshed,
    /// A link that comes back is not noticed.
    LinkChangeSwallowed,
    /// renewTime is the wall clock, steps included (undoes D5).
    RenewTimeIsTheWallClock,
    /// renewTime with milliseconds.
    RenewTimeWithThreeDigits,
    /// A lane sends again while it waits.
    TwoInFlight,
    /// The Lease waits for a hung status (undoes LSE-16).
    StatusBlocksLease,
    /// Conditions are sent only when the board changes, never asserted (undoes D4, PRS-7).
    ConditionsNeverAsserted,
    /// One condition is forgotten in every patch.
    PidPressureForgotten,
    /// After a 404 the Node is never registered again (undoes D1).
    GivenUpOn404,
    /// Deadlines in the past.
    BusyLoop,
    /// Addresses merged by type, as the API declares them (PAT-4's bug).
    AddressesMerged,
    /// Refused requests repeated at once.
    Impatient,
    /// Retry-After is not read.
    RetryAfterIgnored,
    /// Wiped labels stay wiped (undoes UPD-2).
    LabelsNeverSent,
    /// The board is probed once and never again.
    ProbedOnce,
    /// What cannot be counted is none.
    UnreadIsZero,
    /// A misspelt field.
    FieldMisspelt,
    /// What is on its way to the disk is told as if it were there.
    SentBeforeSynced,
    /// When nothing waits, the next process begins with the first number again.
    NumberingRestarts,
    /// What made room for others leaves no trace.
    DropsNotRecorded,
    /// A report is sent again after a later one.
    OlderStatusOverNewer,
    /// A record is forgotten when it is sent.
    ForgottenBeforeAccepted,
    /// An event that waited is told after one of much later.
    ToldInAnotherOrder,
    /// A wrong `Date` is taken for the time.
    WrongDateBelieved,
    /// A 404 of anybody means that the Node is gone (undoes D14).
    StrangersDeletion,
    /// Any refusal of anybody ends a record.
    StrangersRefusal,
    /// A success of anybody is an acknowledged renewal.
    StrangersSuccess,
    /// An event has another name at each try.
    NamesDrawnAnew,
    /// What waited is dated when it is told.
    EventsDatedNow,
    /// A change is dated when it is told (undoes PRS-0).
    TransitionsDatedNow,
    /// lastHeartbeatTime never moves.
    HeartbeatStandsStill,
    /// DiskPressure is given the reason of another condition.
    ReasonOfAnother,
    /// What ends pressure is the threshold alone (undoes EVI-7).
    ReclaimIgnored,
    /// Allocatable is the whole capacity (undoes ALC-1).
    NothingReserved,
    /// The Lease lasts a second longer than asked for.
    LeaseOfAnotherLength,
    /// The annotation of the last outage counts one change more.
    OutageMiscounted,
    /// What the network took on a day is never said.
    LastDayUntold,
    /// After others wrote the Node, a change that waited is told after one of much later.
    ChangesToldInAnotherOrder,
    /// After others wrote the Node, two changes that waited are told in one moment.
    ChangesToldTogether,
    /// A Lease that is gone says nothing of the Node (undoes LSE-14).
    DoubtForgotten,
    /// What a server says that is too busy to speak of objects is nobody's word.
    PlainWordsUnheard,
    /// What lies there unread is read a period after its time.
    ReadTooLate,
    /// Nobody counts what the network takes (undoes D16).
    BudgetIgnored,
    /// Renewals wait as well when nothing is left of the day's bytes.
    RenewalsPutOff,
    /// A watch does not tell what others wrote (undoes D4).
    OthersUnseen,
    /// `nodepulse away` and `nodepulse back` are not heard.
    AbsenceUnheard,
    BackUnheard,
    /// What was announced is not kept over a start.
    AbsenceForgotten,
    /// Nobody finds that a process ran when the power went.
    RunForgotten,
    /// Word that the machine goes down is not heard, or that it does not.
    ShutdownUnheard,
    CallOffUnheard,
    /// A resource that left the settings stays on the Node, or a label of what is not there any more.
    ResourceNeverTakenBack,
    LabelNeverTakenBack,
    /// A device that its plug-in calls unhealthy can be had all the same.
    SickDevicesAllocatable,
    /// A change of a sensor's condition is told to nobody, or twice, or after one of much later.
    SensorChangeLost,
    SensorChangeDoubled,
    SensorChangeInAnotherOrder,
    /// A sensor that stopped to answer is taken for one that was never there.
    SensorSilenceUnseen,
    /// One that is gone with a reboot is taken for one that is well.
    SensorGoneUnseen,
}

pub const PLANTED: [Planted; 59] = [
    Planted::OwnerNeverRefreshed,
    Planted::LinkChangeSwallowed,
    Planted::RenewTimeIsTheWallClock,
    Planted::RenewTimeWithThreeDigits,
    Planted::TwoInFlight,
    Planted::StatusBlocksLease,
    Planted::ConditionsNeverAsserted,
    Planted::PidPressureForgotten,
    Planted::GivenUpOn404,
    Planted::BusyLoop,
    Planted::AddressesMerged,
    Planted::Impatient,
    Planted::RetryAfterIgnored,
    Planted::LabelsNeverSent,
    Planted::ProbedOnce,
    Planted::UnreadIsZero,
    Planted::FieldMisspelt,
    Planted::SentBeforeSynced,
    Planted::NumberingRestarts,
    Planted::DropsNotRecorded,
    Planted::OlderStatusOverNewer,
    Planted::ForgottenBeforeAccepted,
    Planted::ToldInAnotherOrder,
    Planted::WrongDateBelieved,
    Planted::StrangersDeletion,
    Planted::StrangersRefusal,
    Planted::StrangersSuccess,
    Planted::NamesDrawnAnew,
    Planted::EventsDatedNow,
    Planted::TransitionsDatedNow,
    Planted::HeartbeatStandsStill,
    Planted::ReasonOfAnother,
    Planted::ReclaimIgnored,
    Planted::NothingReserved,
    Planted::LeaseOfAnotherLength,
    Planted::OutageMiscounted,
    Planted::LastDayUntold,
    Planted::ChangesToldInAnotherOrder,
    Planted::ChangesToldTogether,
    Planted::DoubtForgotten,
    Planted::PlainWordsUnheard,
    Planted::ReadTooLate,
    Planted::BudgetIgnored,
    Planted::RenewalsPutOff,
    Planted::OthersUnseen,
    Planted::AbsenceUnheard,
    Planted::BackUnheard,
    Planted::AbsenceForgotten,
    Planted::RunForgotten,
    Planted::ShutdownUnheard,
    Planted::CallOffUnheard,
    Planted::ResourceNeverTakenBack,
    Planted::LabelNeverTakenBack,
    Planted::SickDevicesAllocatable,
    Planted::SensorChangeLost,
    Planted::SensorChangeDoubled,
    Planted::SensorChangeInAnotherOrder,
    Planted::SensorSilenceUnseen,
    Planted::SensorGoneUnseen,
];

impl Planted {
    /// What the violation says by which it is noticed: another one would be an accident.
    pub fn sign(self) -> &'static str {
        match self {
            Planted::OwnerNeverRefreshed => "Lease",
            Planted::ReadTooLate => "lay there unread",
            Planted::LinkChangeSwallowed => "the Lease is late",
            Planted::RenewTimeIsTheWallClock => "is not after the last one",
            Planted::RenewTimeWithThreeDigits => "spec.renewTime",
            Planted::TwoInFlight => "in flight",
            Planted::StatusBlocksLease => "in flight are [Status]",
            Planted::ConditionsNeverAsserted => "is \"Unknown\", in truth it is",
            Planted::PidPressureForgotten => "PIDPressure",
            Planted::GivenUpOn404 => "there is no Node",
            Planted::BusyLoop => "a busy loop",
            Planted::AddressesMerged => "addresses",
            Planted::Impatient => "requests in a minute",
            Planted::RetryAfterIgnored => "Retry-After",
            Planted::LabelsNeverSent => "kubernetes.io/",
            Planted::ProbedOnce | Planted::OlderStatusOverNewer => "in truth it is",
            Planted::UnreadIsZero => "a report makes cpu",
            Planted::FieldMisspelt => "unknown field",
            Planted::SentBeforeSynced => "synced",
            Planted::NumberingRestarts => "were never told",
            Planted::DropsNotRecorded => "0 are counted as dropped",
            Planted::ForgottenBeforeAccepted => "were never told",
            Planted::ToldInAnotherOrder => "out of order",
            Planted::WrongDateBelieved => "renewTime is",
            Planted::StrangersDeletion => "what the API server never said",
            Planted::StrangersRefusal => "were never told",
            Planted::StrangersSuccess => "the Lease is late",
            Planted::NamesDrawnAnew => "once more than it happened",
            Planted::EventsDatedNow => "at a time when there was none",
            Planted::TransitionsDatedNow => "lastTransitionTime",
            Planted::HeartbeatStandsStill => "lastHeartbeatTime of",
            Planted::ReasonOfAnother => "has other words than KubeletHasNoDiskPressure",
            Planted::ReclaimIgnored => "is told to be False, in truth it is True",
            Planted::NothingReserved | Planted::SickDevicesAllocatable => "the allocatable is",
            Planted::ResourceNeverTakenBack => "the capacity is",
            Planted::LeaseOfAnotherLength => "the Lease says",
            Planted::OutageMiscounted => "last-outage is",
            Planted::LastDayUntold => "of the last day",
            Planted::ChangesToldInAnotherOrder => "out of order",
            Planted::ChangesToldTogether => "is told 0 ms after another one",
            Planted::DoubtForgotten => "nobody asks whether the Node is",
            Planted::PlainWordsUnheard => "is understood as",
            Planted::BudgetIgnored => "though nothing is left of the day's",
            Planted::RenewalsPutOff => "the Lease is late",
            Planted::OthersUnseen => "nobody looks at it",
            Planted::AbsenceUnheard | Planted::AbsenceForgotten => "Absence announced until",
            Planted::RunForgotten => "the Node has no condition UnexpectedReboot",
            Planted::ShutdownUnheard => "happenings were never told",
            Planted::CallOffUnheard => "with nothing in flight",
            Planted::BackUnheard => "the board is there, and the Node says",
            Planted::SensorChangeLost => "happenings were never told",
            Planted::SensorChangeDoubled => "NTPProblem",
            Planted::SensorChangeInAnotherOrder => "out of order",
            Planted::SensorSilenceUnseen => "in truth it is Unknown",
            Planted::SensorGoneUnseen => "NTPProblem is \"False\", in truth it is Unknown",
            Planted::LabelNeverTakenBack => "the labels of the board are",
        }
    }

    /// Only a long outage shows it.
    pub fn takes_long(self) -> bool {
        self == Planted::DropsNotRecorded
    }
}
