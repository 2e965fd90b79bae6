//! Three replicas of a web service. The elected one does the work, and the others forward to it.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Election, Leadership, Locks, Token};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Runs three replicas in one process; as a rule, each is a process on its own machine.
#[tokio::main]
pub async fn main() -> Result<()> {
    let locks = leasehold::open("memory:").await?;
    let mut replicas = Vec::new();
    for _ in 0..3 {
        replicas.push(Replica::start(&locks).await?);
    }

    let reply = until_served(&replicas[0].address).await;
    for replica in &replicas {
        assert_eq!(
            request(&replica.address, "/work").await?,
            (200, reply.clone())
        );
    }
    println!("{reply}");

    let leader = reply.split(' ').next().unwrap_or_default().to_owned();
    replicas.retain(|replica| replica.address != leader);
    let reply = until_served(&replicas[0].address).await;
    assert!(!reply.starts_with(&leader), "the leader was stopped");
    println!("{reply}");
    Ok(())
}

/// A running replica. Dropping it stops its tasks, and a leader resigns.
struct Replica {
    address: String,
    _tasks: JoinSet<()>,
}

/// What the handlers of one replica share.
#[derive(Clone)]
struct Shared {
    address: String,
    election: Election,
    leadership: Arc<Mutex<Option<Leadership>>>,
}

impl Replica {
    async fn start(locks: &Locks) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let shared = Shared {
            address: address.clone(),
            election: locks.election("replicas"),
            leadership: Arc::default(),
        };

        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, shared.clone()));
        tasks.spawn(campaign(shared));
        Ok(Self {
            address,
            _tasks: tasks,
        })
    }
}

/// Campaigns again and again, and keeps the leadership until it is lost.
async fn campaign(shared: Shared) {
    loop {
        let Ok(leadership) = shared.election.campaign(&shared.address).await else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        *shared.leadership.lock().await = Some(leadership);

        while shared.token().await.is_some() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        *shared.leadership.lock().await = None;
    }
}

impl Shared {
    /// Returns the token of this replica's leadership; `None` if another one leads.
    async fn token(&self) -> Option<Token> {
        let held = self.leadership.lock().await;
        let leadership = held.as_ref()?;
        leadership.check().is_ok().then(|| leadership.token())
    }

    /// Does the work if this replica leads. A database would receive the token with each write.
    async fn work(&self) -> Option<String> {
        let token = self.token().await?;
        Some(format!("{} worked under token {token}", self.address))
    }

    async fn work_or_forward(&self) -> Option<String> {
        if let Some(done) = self.work().await {
            return Some(done);
        }

        let leader = self.election.leader().await.ok()??;
        match request(leader.address(), "/lead").await {
            Ok((200, done)) => Some(done),
            Ok(_) | Err(_) => None,
        }
    }
}

/// A small HTTP server; a real service would use a web framework.
async fn serve(listener: TcpListener, shared: Shared) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            // A client that has gone needs no reply.
            let _ = reply(stream, &shared).await;
        });
    }
}

async fn reply(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = Vec::new();
    let mut line = String::from("\n");
    while !line.trim_end().is_empty() || head.is_empty() {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        head.push(line.clone());
    }

    let done = match head[0].split(' ').nth(1) {
        Some("/work") => shared.work_or_forward().await,
        Some("/lead") => shared.work().await,
        _ => None,
    };
    let reply = match done {
        Some(done) => format!("HTTP/1.0 200 OK\r\n\r\n{done}"),
        None => "HTTP/1.0 503 Service Unavailable\r\n\r\n".to_owned(),
    };
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await
}

/// Requests work until a leader has done it.
async fn until_served(address: &str) -> String {
    loop {
        match request(address, "/work").await {
            Ok((200, reply)) => return reply,
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Sends a GET request. Returns the status and the body of the reply.
async fn request(address: &str, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;

    let mut reply = String::new();
    stream.read_to_string(&mut reply).await?;
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_default();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Ok((status.unwrap_or_default(), body.to_owned()))
}
