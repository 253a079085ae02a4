//! The network changes: which connections are used on, and which begin anew.

use super::*;

#[test]
fn a_change_of_the_network_begins_anew_what_is_under_way_over_a_path_that_is_gone() {
    let authority = Authority::new();
    let server = HangingServer::new(&authority);
    let pool = pool(kubeconfig(&authority, server.listener.port));
    let executor = smol::LocalExecutor::new();
    let hung = executor.spawn(pool.exchange(Operation::ReadVersion));
    let change = async {
        server.has_one(&pool).await;
        pool.network_changed(&|_| true);
        // As long as it would take.
        pool.reactor.sleep_until(clock::up() + Duration::from_millis(50)).await;
        assert_eq!(server.listener.accepted(), 1, "this path still works");
        pool.network_changed(&|_| false);
        // At its time-out it would have failed.
        assert_eq!(hung.await.result, version());
    };
    pool.reactor.block_on(executor.run(change)).unwrap();
    assert_eq!(server.listener.accepted(), 2);
}

#[test]
fn a_change_of_the_network_takes_the_idle_connection_only_if_its_path_is_gone() {
    let authority = Authority::new();
    let server = Listener::answering(&authority, version_reply());
    let pool = pool(kubeconfig(&authority, server.port));
    for (still_works, connections) in [(true, 1), (true, 1), (false, 2), (true, 2)] {
        assert_eq!(ask(&pool).result, version());
        pool.network_changed(&|local| still_works && local.is_loopback());
        assert_eq!(ask(&pool).result, version());
        assert_eq!(server.accepted(), connections);
    }
}

/// After a change of the network the agent lets go of what was there before: the connection that is under way is none of it.
#[test]
fn a_connection_that_is_being_opened_while_idle_ones_are_dropped_is_kept() {
    let authority = Authority::new();
    let server = Listener::answering(&authority, version_reply());
    let pool = pool(kubeconfig(&authority, server.port));
    let executor = smol::LocalExecutor::new();
    let opening = executor.spawn(pool.exchange(Operation::ReadVersion));
    let dropped = async {
        while !pool.attempts.have_connections() {
            smol::future::yield_now().await;
        }
        assert!(pool.kept.borrow().is_none(), "it is not open yet");
        pool.drop_idle();
        assert_eq!(opening.await.result, version());
    };
    pool.reactor.block_on(executor.run(dropped)).unwrap();
    assert_eq!((ask(&pool).result, server.accepted()), (version(), 1));
}

/// An address more, as IPv6 brings one a second after the link, is no reason to shake hands again.
#[test]
fn a_connection_that_was_heard_of_lately_is_kept_when_those_of_before_are_dropped() {
    let authority = Authority::new();
    let server = Listener::answering(&authority, version_reply());
    let pool = pool(kubeconfig(&authority, server.port));
    let minute = Duration::from_secs(60);
    for (lately, connections) in [(minute, 1), (minute, 1), (Duration::ZERO, 2), (minute, 2)] {
        assert_eq!(ask(&pool).result, version());
        pool.drop_unheard(lately);
        assert_eq!(ask(&pool).result, version());
        assert_eq!(server.accepted(), connections);
    }
    let heard_at = || pool.kept.borrow().as_ref().unwrap().heard_at();
    let before = heard_at();
    assert_eq!(ask(&pool).result, version());
    assert!(heard_at() > before, "each answer counts");
}

#[test]
fn a_change_of_the_network_begins_a_connection_that_is_being_opened_anew() {
    let authority = Authority::new();
    let silent = Silent::new();
    let pool = pool(kubeconfig(&authority, silent.address.port()));
    let executor = smol::LocalExecutor::new();
    let mut span = Duration::from_millis(200);
    let spent = loop {
        let start = clock::up();
        let opening = executor.spawn(pool.exchange_within(Operation::ReadVersion, None, span));
        let change = async {
            pool.reactor.sleep_until(start + span / 2).await;
            let in_time = pool.attempts.have_connections() && clock::up() < start + span;
            let changed = clock::up();
            pool.network_changed(&|_| true);
            let result = opening.await.result;
            assert!(["timed-out", "connect-failed"].contains(&&*result.unwrap_err().word()));
            in_time.then(|| clock::up() - changed)
        };
        match pool.reactor.block_on(executor.run(change)).unwrap() {
            Some(spent) => break spent,
            // This machine is busy: what takes half the time took all of it.
            None => span *= 2,
        }
    };
    assert!(spent >= span, "it has its whole time again");
}
