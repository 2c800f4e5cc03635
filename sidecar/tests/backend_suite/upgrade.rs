//! A broker over TCP that comes back as another program.

use std::{sync::Arc, time::Duration};

use tokio::{net::TcpSocket, time::timeout};
use waybill_protocol::remoting::{
    Command,
    codes::{request, response},
};
use waybill_sidecar::backend::{MessageService, RemoteOptions, RemoteTransport};

use crate::{
    LONG,
    batches::{both, willing},
    fake_broker::{BACKLOG, FakeBroker, Out, Reply, places},
    leases::change,
    scripted::{lease, refuse, route_to, service},
};

/// A broker that takes batches, or does not.
fn broker(place: TcpSocket, takes_batches: bool) -> FakeBroker {
    let listener = place.listen(BACKLOG).expect("listen");
    let address = listener.local_addr().expect("an address");
    FakeBroker::start_on(listener, move |command: Command, reply: &Reply| {
        let answer = match command.code {
            request::BATCH_CHANGE_MESSAGE_INVISIBLETIME | request::BATCH_ACK_MESSAGE if !takes_batches => {
                refuse(response::REQUEST_CODE_NOT_SUPPORTED, "no")
            }
            request::GET_ROUTEINFO_BY_TOPIC | request::GET_BROKER_CLUSTER_INFO => route_to(command.code, address),
            _ => willing(&command),
        };
        reply.send(Out::Frame(answer.expect("an answer").reply_to(&command))).expect("open");
    })
}

fn asked(broker: &FakeBroker) -> [usize; 2] {
    let seen = broker.seen();
    [request::BATCH_CHANGE_MESSAGE_INVISIBLETIME, request::BATCH_ACK_MESSAGE]
        .map(|code| seen.iter().filter(|command| command.code == code).count())
}

/// Seven changes and seven acks. False if the connection broke.
async fn ask(service: &MessageService) -> bool {
    let changes = service.change_invisible((10..17).map(change).collect()).await;
    let acks = service.ack((0..7).map(|offset| lease("a", offset)).collect()).await;
    changes.iter().all(Result::is_ok) && acks.iter().all(Result::is_ok)
}

#[tokio::test]
async fn a_broker_that_is_replaced_is_asked_for_batches_again() {
    let (address, [first, second]) = places();
    let old = broker(first, false);
    let options = RemoteOptions { connect_timeout: LONG, max_in_flight: 10_000, max_frame: 4 << 20 };
    let transport = Arc::new(RemoteTransport::new(options));
    let service = service(transport, |config| {
        both(config);
        config.namesrv_addr = address.to_string();
    })
    .service;
    for _ in 0..3 {
        assert!(ask(&service).await);
    }
    assert_eq!(asked(&old), [1, 1], "once, and not again over this connection");
    old.stop().await;
    let new = broker(second, true);
    // The first call may still meet the old connection, or the pause after it; what is learnt lasts ten minutes.
    let again = async {
        while !ask(&service).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, again).await.expect("connected again");
    assert!(ask(&service).await);
    let before = asked(&new);
    assert!(ask(&service).await);
    assert_eq!(asked(&new), [before[0] + 1, before[1] + 1], "one batch each");
    let singles = [request::CHANGE_MESSAGE_INVISIBLETIME, request::ACK_MESSAGE];
    let last: Vec<_> = new.seen().iter().rev().take(2).map(|command| command.code).collect();
    assert!(last.iter().all(|code| !singles.contains(code)), "{last:?}");
}
