//! A replica of a web service. The elected one does the work, and the others forward to it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Router, serve};
use leasehold::{Election, Leader, Leadership, Token, Watch};
use leasehold_examples::settings::setting;
use leasehold_examples::signals::terminated;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;

/// The pause after an error of the store.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest wait for the reply of the leader.
const FORWARD_MAX: Duration = Duration::from_secs(5);

/// What the handlers and the tasks of this replica share.
struct Replica {
    address: String,
    election: Election,
    client: reqwest::Client,
    /// The term of this replica; `None` while another one leads.
    term: watch::Sender<Option<Term>>,
    /// The leader, whichever replica it is.
    leader: watch::Sender<Option<Leader>>,
}

/// What the handlers know of the leadership. The campaign owns it.
#[derive(Clone)]
struct Term {
    token: Token,
    watch: Watch,
}

#[tokio::main]
async fn main() -> Result<()> {
    let locks = leasehold::open(&setting::<String>("LEASEHOLD_STORE")?).await?;
    let listener = TcpListener::bind(setting::<String>("LISTEN")?).await?;
    let replica = Arc::new(Replica {
        address: listener.local_addr()?.to_string(),
        election: locks.election("replicas"),
        client: reqwest::Client::builder().timeout(FORWARD_MAX).build()?,
        term: watch::Sender::new(None),
        leader: watch::Sender::new(None),
    });

    tokio::spawn(campaign(Arc::clone(&replica)));
    tokio::spawn(observe(Arc::clone(&replica)));
    let routes = Router::new()
        .route("/ready", get(ready))
        .route("/work", post(work_or_forward))
        .route("/leader/work", post(work))
        .with_state(Arc::clone(&replica));
    println!("listening on {}", replica.address);
    serve(listener, routes)
        .with_graceful_shutdown(terminated())
        .await?;
    Ok(()) // the end of the runtime drops the campaign, and a leader resigns
}

/// Campaigns again and again, and leads until the leadership is lost.
async fn campaign(replica: Arc<Replica>) {
    loop {
        match replica.election.campaign(&replica.address).await {
            Ok(leadership) => replica.lead(leadership).await,
            Err(error) => {
                eprintln!("{error}");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Keeps the address of the leader up to date.
async fn observe(replica: Arc<Replica>) {
    loop {
        let Err(error) = replica.follow_leaders().await;
        eprintln!("{error}");
        replica.leader.send_replace(None);
        sleep(PAUSE).await;
    }
}

impl Replica {
    async fn lead(&self, leadership: Leadership) {
        self.term.send_replace(Some(Term {
            token: leadership.token(),
            watch: leadership.watch(),
        }));
        let reason = leadership.lost().await;
        eprintln!("the leadership is lost: {reason}");
        self.term.send_replace(None);
    }

    async fn follow_leaders(&self) -> leasehold::Result<std::convert::Infallible> {
        let mut observer = self.election.observe().await?;
        loop {
            let leader = observer.next().await?;
            self.leader.send_replace(leader);
        }
    }

    /// Does the work if this replica leads.
    async fn work(&self) -> Option<String> {
        let Term { token, watch } = self.term.borrow().clone()?;
        tokio::select! {
            biased;
            _ = watch.lost() => None,
            // A database would receive the token with each write.
            done = async { format!("{} {token}", self.address) } => Some(done),
        }
    }

    async fn forward(&self, leader: &Leader) -> reqwest::Result<String> {
        let url = format!("http://{}/leader/work", leader.address());
        let reply = self.client.post(url).send().await?;
        reply.error_for_status()?.text().await
    }
}

/// This replica can serve a request if it knows a leader.
async fn ready(State(replica): State<Arc<Replica>>) -> Result<String, StatusCode> {
    let leader = replica
        .leader
        .borrow()
        .clone()
        .ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(leader.address().to_owned())
}

async fn work_or_forward(State(replica): State<Arc<Replica>>) -> Result<String, StatusCode> {
    if let Some(done) = replica.work().await {
        return Ok(done);
    }

    let leader = replica
        .leader
        .borrow()
        .clone()
        .ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    let forwarded = replica.forward(&leader).await;
    forwarded.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
}

/// A forwarded request is not forwarded again.
async fn work(State(replica): State<Arc<Replica>>) -> Result<String, StatusCode> {
    let done = replica.work().await;
    done.ok_or(StatusCode::SERVICE_UNAVAILABLE)
}
