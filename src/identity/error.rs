//! What can be wrong with an identity or on the way to one: a machine word, and a sentence with what to do next.

use std::fmt;

/// Why something is not trusted, not taken or not read. No secret is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityError {
    /// CSR-6: what the certificate is.
    WrongCertificate(String),
    /// CSR-4: what of the answer cannot be read.
    AnswerMalformed(String),
    /// CSR-11: file of the identity's folder, and what of it is not there.
    FileDamaged(&'static str, &'static str),
}

impl IdentityError {
    /// The machine word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::WrongCertificate(_) => "wrong-certificate",
            Self::AnswerMalformed(_) => "answer-malformed",
            Self::FileDamaged(..) => "identity-damaged",
        }
    }
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongCertificate(what) => {
                write!(
                    f,
                    "the certificate that was issued is not taken: {what}; look at what approves and signs requests"
                )
            }
            Self::AnswerMalformed(what) => write!(f, "the answer cannot be read: {what}; is this an API server?"),
            Self::FileDamaged(file, what) => {
                write!(f, "{file} is damaged: {what}; without an older copy this board has to join again")
            }
        }
    }
}

impl std::error::Error for IdentityError {}
