use async_trait::async_trait;
use parking_lot::Mutex;
use waybill_protocol::remoting::TopicList;
use waybill_protocol::remoting::codes::request;

use super::*;

/// A broker that answers from a function and remembers what it was asked.
struct Scripted<F> {
    asked: Mutex<Vec<Command>>,
    answer: F,
}

#[async_trait]
impl<F: Fn(&Command) -> Result<Command, TransportError> + Send + Sync> Transport for Scripted<F> {
    async fn call(&self, _address: &str, request: Command, _limit: Duration) -> Result<Command, TransportError> {
        let answer = (self.answer)(&request);
        self.asked.lock().push(request);
        answer
    }

    async fn oneway(&self, _address: &str, _request: Command, _limit: Duration) -> Result<(), TransportError> {
        Err(TransportError::Timeout)
    }
}

fn scripted<F>(answer: F) -> (Broker, Arc<Scripted<F>>)
where
    F: Fn(&Command) -> Result<Command, TransportError> + Send + Sync + 'static,
{
    let transport = Arc::new(Scripted { asked: Mutex::default(), answer });
    (Broker { transport: transport.clone(), address: "broker:1".to_owned(), speaks_tls: false }, transport)
}

/// A page of two names, of a list of `total`.
fn page_of(request: &Command, total: usize) -> Command {
    let seen: usize = request.ext.get("seq").and_then(|seq| seq.parse().ok()).unwrap_or(0);
    let names = (seen..total.min(seen + 2)).map(|number| format!("t{number}")).collect();
    let mut answer =
        Command::response(response::SUCCESS, "").with_json(&TopicList { topic_list: names, ..TopicList::default() });
    answer.ext.set_number("total", total);
    answer
}

async fn collect(broker: &Broker) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    let page = |seen: usize| {
        let mut command = Command::request(request::GET_ALL_TOPIC_CONFIG);
        command.ext.set_number("seq", seen);
        command
    };
    let take = |list: TopicList| {
        names.extend(list.topic_list.iter().cloned());
        list.topic_list.len()
    };
    broker.pages(page, "total", take).await?;
    Ok(names)
}

#[tokio::test]
async fn pages_are_put_together() {
    let (broker, transport) = scripted(|request| Ok(page_of(request, 5)));
    assert_eq!(collect(&broker).await, Ok(["t0", "t1", "t2", "t3", "t4"].map(str::to_owned).to_vec()));
    assert_eq!(transport.asked.lock().len(), 3);
}

#[tokio::test]
async fn a_list_without_a_total_is_whole() {
    let (broker, transport) = scripted(|request| {
        let mut answer = page_of(request, 2);
        answer.ext = Default::default();
        Ok(answer)
    });
    assert_eq!(collect(&broker).await.map(|names| names.len()), Ok(2));
    assert_eq!(transport.asked.lock().len(), 1, "not asked again");
}

#[tokio::test]
async fn an_endless_list_ends() {
    let (broker, transport) = scripted(|request| Ok(page_of(request, usize::MAX)));
    assert!(collect(&broker).await.is_ok());
    assert_eq!(transport.asked.lock().len(), PAGES_MAX);
}

#[tokio::test]
async fn failures_say_what_and_where() {
    let (broker, _) = scripted(|_| Err(TransportError::Connection("refused".to_owned())));
    let failure = collect(&broker).await.expect_err("nobody there");
    assert!(matches!(&failure, f if format!("{f:?}").contains("Unavailable") && format!("{f:?}").contains("broker:1")));

    let (broker, _) = scripted(|_| Ok(Command::response(response::TOPIC_NOT_EXIST, "no such topic")));
    let failure = collect(&broker).await.expect_err("refused");
    let wanted = Failure::failed("the broker at broker:1 refused: TOPIC_NOT_EXIST: no such topic");
    assert_eq!(failure, wanted.hint("waybill topic list"));

    let (broker, _) = scripted(|_| Ok(Command::response(response::SUCCESS, "").with_body("{no json")));
    assert!(collect(&broker).await.is_err_and(|failure| format!("{failure:?}").contains("cannot be read")));
}
