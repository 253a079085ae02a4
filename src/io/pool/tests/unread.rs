//! Answers that nobody waits for: they lie in the socket until their time, or until somebody reads there anyway.

use super::http2::{Does, renewal, saving, serving};
use super::*;

/// Longer than an answer takes on any machine that runs these.
const SPAN: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(60);

/// A server over each protocol, and a pool that has asked it once.
fn both() -> [(Pool, Listener); 2] {
    let authority = Authority::new();
    let (http2, _) = serving(&authority, |_, _, _| Does::Answers);
    let http1 = Listener::answering(&authority, version_reply());
    [http2, http1].map(|server| {
        let pool = saving(kubeconfig(&authority, server.port));
        assert_eq!(ask(&pool).result, version());
        (pool, server)
    })
}

#[test]
fn an_answer_that_nobody_waits_for_is_given_back_at_its_time() {
    for (pool, server) in both() {
        let answer_by = clock::up() + SPAN;
        let asked = pool.exchange_by(Operation::ReadVersion, Some(answer_by));
        assert_eq!(pool.reactor.block_on(asked).unwrap().result, version());
        assert!(clock::up() >= answer_by, "it came at once, and lay there");
        assert_eq!(server.accepted(), 1);
    }
}

#[test]
fn what_is_waited_for_brings_along_what_lay_there_over_the_same_connection() {
    for (pool, server) in both() {
        let start = clock::up();
        let unhurried = pool.exchange_by(Operation::ReadVersion, Some(start + LONG));
        let hurried = async {
            pool.reactor.sleep_until(start + SPAN / 4).await;
            pool.exchange(Operation::ReadVersion).await
        };
        let (first, second) = pool.reactor.block_on(smol::future::zip(unhurried, hurried)).unwrap();
        assert_eq!((first.result, second.result), (version(), version()));
        assert!(clock::up() - start < LONG / 2);
        assert_eq!(server.accepted(), 1);
    }
}

#[test]
fn the_end_of_the_connection_is_heard_at_once() {
    let authority = Authority::new();
    // Twice over: what dies with a kept connection is asked once more.
    let (server, _) = serving(
        &authority,
        |connection, number, _| if connection < 2 && number > 0 { Does::Ends } else { Does::Answers },
    );
    let pool = saving(kubeconfig(&authority, server.port));
    assert_eq!(ask(&pool).result, version());
    let start = clock::up();
    let asked = pool.exchange_by(Operation::ReadVersion, Some(start + LONG));
    assert_eq!(pool.reactor.block_on(asked).unwrap().result, version());
    assert!(clock::up() - start < LONG / 2);
    assert_eq!(server.accepted(), 2);
}

#[test]
fn the_first_answer_of_a_connection_is_waited_for() {
    let authority = Authority::new();
    let (server, _) = serving(&authority, |_, _, _| Does::Answers);
    let pool = saving(kubeconfig(&authority, server.port));
    let start = clock::up();
    let asked = pool.exchange_by(Operation::ReadVersion, Some(start + LONG));
    assert_eq!(pool.reactor.block_on(asked).unwrap().result, version());
    assert!(clock::up() - start < LONG / 2);
}

/// As behind nginx: it would lie there for ever.
#[test]
fn who_may_hold_answers_back_is_waited_for() {
    let authority = Authority::new();
    let (server, _) = serving(&authority, |_, _, _| Does::HoldsBack);
    let pool = saving(kubeconfig(&authority, server.port));
    let ask_by = |answer_by| {
        let asked = pool.exchange_by(renewal(), Some(answer_by));
        assert_eq!(pool.reactor.block_on(asked).unwrap().result, Ok(Document::Nothing));
        clock::up()
    };
    let start = clock::up();
    for _ in 0..2 {
        assert!(ask_by(start + LONG) - start < LONG / 2);
    }
    let answer_by = clock::up() + SPAN;
    assert!(ask_by(answer_by) >= answer_by, "it has a window as it is");
    assert_eq!(server.accepted(), 1);
}

#[test]
fn one_without_an_answer_at_its_time_has_what_is_left_of_its_deadline() {
    let authority = Authority::new();
    let (server, _) = serving(&authority, |_, number, _| if number == 1 { Does::Hangs } else { Does::Answers });
    let pool = saving(kubeconfig(&authority, server.port));
    assert_eq!(ask(&pool).result, version());
    for (answer_by, deadline) in [(SPAN / 4, SPAN), (SPAN, SPAN / 4)] {
        let start = clock::up();
        let asked = pool.exchange_within(Operation::ReadVersion, Some(start + answer_by), deadline);
        let answer = pool.reactor.block_on(asked).unwrap();
        let span = clock::up() - start;
        if answer.result.is_err() {
            assert_eq!(answer.result, Err(Refusal::Failed(Failure::timed_out(deadline))));
            assert!(span >= answer_by.max(deadline), "{span:?}");
        } else {
            assert_eq!(answer.result, version(), "over another connection, where the first answer is waited for");
        }
    }
    assert_eq!(server.accepted(), 2);
}
