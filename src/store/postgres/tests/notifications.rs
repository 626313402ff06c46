//! Notifications over LISTEN and NOTIFY.

use super::proxy::Proxy;
use super::*;
use crate::store::Notification;

#[tokio::test(flavor = "multi_thread")]
async fn messages_reach_every_replica_and_gaps_are_reported() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let proxy = Proxy::start(database.address()).await;
    let schema = database.new_schema();
    let one = database.open(&schema).await;
    let options = database.options_through(&schema, proxy.address);
    let other = Postgres::open(options).await.unwrap();
    let elsewhere = database.open(&database.new_schema()).await;
    let sender = one.notifier().unwrap();
    let receiver = other.notifier().unwrap();
    let stranger = elsewhere.notifier().unwrap();
    for notifier in [&sender, &receiver, &stranger] {
        assert_eq!(notifier.receive().await, Notification::Gap);
    }
    let large = vec![0xff; sender.max_bytes()];
    for message in [&b"\0\xffhi"[..], &large] {
        sender.publish(message).await.unwrap();
        let expected = Notification::Message(message.to_vec());
        assert_eq!(receiver.receive().await, expected);
        assert_eq!(sender.receive().await, expected);
    }
    // The same transport with another schema has received nothing.
    stranger.publish(b"own").await.unwrap();
    let own = Notification::Message(b"own".to_vec());
    assert_eq!(stranger.receive().await, own);
    proxy.close_all();
    assert_eq!(receiver.receive().await, Notification::Down);
    loop {
        match receiver.receive().await {
            Notification::Gap => break,
            Notification::Down => {}
            Notification::Message(message) => panic!("{message:?}"),
        }
    }
    sender.publish(b"again").await.unwrap();
    let again = Notification::Message(b"again".to_vec());
    assert_eq!(receiver.receive().await, again);
    database.drop_schemas().await;
}
