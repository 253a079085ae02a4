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
}

pub const FAULTS: [Fault; 10] = [
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
            Fault::NameOfAnother => "is not in the cluster",
            Fault::AsksAgainAtOnce => "within a minute after a refusal",
        }
    }
}
