//! Faults that worlds of identities must notice.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The token goes to a server that nobody has proven (undoes JOIN-1).
    TokenBeforeVerification,
    /// Of a bundle in which one CA is pinned all are kept (undoes JOIN-3).
    UnpinnedKept,
    /// A renewal asks with the key of the certificate in use (undoes CSR-3).
    KeyReused,
    /// A certificate is kept before the server has taken it (undoes CSR-6).
    OldDroppedEarly,
    /// What a process was on its way to is forgotten with it (undoes CSR-11).
    RenewalLost,
    /// A file takes its name before it is on the disk (undoes CSR-10).
    RenamedUnsynced,
    /// A request has another name at each try (undoes CSR-2).
    TwoRequestsForOneKey,
    /// The key is written when its certificate has come (undoes CSR-3).
    KeyInMemory,
    /// A card of another board is used as it is (undoes FLEET-1).
    NameOfAnother,
    /// A refusal is answered by asking at once.
    AsksAgainAtOnce,
    /// A supervisor hears the token whoever it is (undoes K3S-1).
    SupervisorUnverified,
    /// A supervisor hears a password that the disk does not have (undoes K3S-2).
    PasswordInMemory,
    /// A key that all agents have is taken without anybody's leave (undoes K3S-2).
    SharedKeyTaken,
    /// A supervisor gives the next certificate out for a new password (undoes K3S-6).
    PasswordForgotten,
    /// Only the first of the servers is asked (undoes JOIN-7).
    OneServer,
    /// A board that has joined does not look at the servers of its settings (undoes JOIN-7).
    SettingsIgnored,
}

pub const FAULTS: [Fault; 16] = [
    Fault::TokenBeforeVerification,
    Fault::UnpinnedKept,
    Fault::KeyReused,
    Fault::OldDroppedEarly,
    Fault::RenewalLost,
    Fault::RenamedUnsynced,
    Fault::TwoRequestsForOneKey,
    Fault::KeyInMemory,
    Fault::NameOfAnother,
    Fault::AsksAgainAtOnce,
    Fault::SupervisorUnverified,
    Fault::PasswordInMemory,
    Fault::SharedKeyTaken,
    Fault::PasswordForgotten,
    Fault::OneServer,
    Fault::SettingsIgnored,
];

impl Fault {
    /// What the violation says by which it is noticed.
    pub fn sign(self) -> &'static str {
        match self {
            Fault::TokenBeforeVerification => "nobody was verified",
            Fault::UnpinnedKept => "a CA is trusted that is not the cluster's",
            Fault::KeyReused => "a key that a certificate in use has",
            Fault::OldDroppedEarly => "before the server has taken the new one",
            Fault::RenewalLost => "a second key",
            Fault::RenamedUnsynced => "is gone",
            Fault::TwoRequestsForOneKey => "two requests for one key",
            Fault::KeyInMemory => "a key that a power cut would take",
            Fault::NameOfAnother | Fault::OneServer | Fault::SettingsIgnored => "is not in the cluster",
            Fault::AsksAgainAtOnce => "within a minute after a refusal",
            Fault::SupervisorUnverified => "/config brings a secret to",
            Fault::PasswordInMemory => "a node password that a power cut would take",
            Fault::SharedKeyTaken => "a key is taken that others have",
            Fault::PasswordForgotten => "another node password",
        }
    }
}
