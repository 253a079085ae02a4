//! Turns Kubernetes quantities (`100Mi`, `250m`, `4`) into exact numbers and back into the API's canonical text.

/// A resource amount, exact, with the family its text is written in (A.7): arithmetic keeps the left operand's family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity {
    nano: i128,
    family: SuffixFamily,
}

/// How a quantity is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuffixFamily {
    /// `Ki`, `Mi`, `Gi` ...: bytes.
    Binary,
    /// `m`, none, `k`, `M` ...: cores, pods.
    Decimal,
}
