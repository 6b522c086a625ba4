//! The model of the nodes decides like ZooKeeper: the same random calls through crate `coordination`, on the embedded server. Of
//! refused calls the kind is compared, and after each call everything that a master and an engine read.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use coordination::alter_node::{self, Alteration};
use coordination::{
    AlterNode, CreateOutcome, DrainOrder, Election, EngineCredential, Error, Identity, Layout, Lock, Logins, Permit,
    PermitNode, Registration, Session, SessionSettings, ZkErrorKind, bootstrap, drains, observe, permits, registry,
};
use embedded_zookeeper::{Config, Server};
use keys::{Current, KeyGeneration, MasterKeys, Root, SecretKey};
use master::Failure;
use model::alteration::{ObjectKind, ObjectRef, RequestId, Source};
use model::clock::{SharedClock, SystemClock};
use model::engine_name::EngineName;
use model::number::Generation;
use model::shared::Shared;
use model::{PoolName, TenantName, UnitName};
use simulation::Mutant;
use simulation::nodes::Nodes;
use simulation::rng::Rng;
use tokio::runtime::Builder;

const CALLS: u64 = 1_500;
const ENGINES: usize = 3;
/// How often a call relies on a reading that may be outdated, in percent.
const OUTDATED: u64 = 40;
/// Calls of a deposed master, in percent.
const DEPOSED: u64 = 4;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Done,
    /// A precondition does not hold.
    Moved,
    /// The lock is gone.
    Lost,
}

fn of_model(result: &Result<(), Failure>) -> Ended {
    match result {
        Ok(()) => Ended::Done,
        Err(Failure::Moved(_)) => Ended::Moved,
        Err(Failure::Lost(_)) => Ended::Lost,
        Err(other) => panic!("{other:?}"),
    }
}

fn of_server(result: &Result<(), Error>) -> Ended {
    match result.as_ref().map_err(Error::kind) {
        Ok(()) => Ended::Done,
        Err(ZkErrorKind::Conflict) => Ended::Moved,
        Err(ZkErrorKind::Lost) => Ended::Lost,
        Err(kind) => panic!("{kind:?}: {result:?}"),
    }
}

/// Both, with the readings that later calls rely on.
struct Pair {
    settings: SessionSettings,
    keys: Current<MasterKeys>,
    clock: SharedClock,
    model: Nodes,
    lock: Lock,
    /// The lock's number in the model.
    term: u64,
    /// The lock of the master before.
    deposed: Option<Lock>,
    agent: Session,
    /// The sessions of the engines that are registered.
    engines: BTreeMap<EngineName, Session>,
    /// The permits as they were read at some time, by server and model.
    seen: BTreeMap<EngineName, (PermitNode, PermitNode)>,
    alter: Option<(AlterNode, AlterNode)>,
    done: BTreeMap<&'static str, [usize; 2]>,
}

fn engine(at: usize) -> EngineName {
    EngineName::new(format!("e-{at}")).unwrap()
}

impl Pair {
    async fn new(server: &Server) -> Self {
        let (root, first) = (Root::new("eh", SecretKey::new([1; 32])), KeyGeneration::FIRST);
        let keys = root.all_roles(first, &[first], coordination::digest).unwrap();
        let layout = Layout::new("/eh/nodes", None).unwrap();
        let settings = SessionSettings::new(server.addr().to_string(), layout, master::identity(&keys.master));
        let clock = SystemClock::shared();
        let lock = Election::new(settings.clone(), clock.clone(), "first").win().await.unwrap();
        let agent = keys.metadata_agent.get();
        let identity = Identity::fixed(Logins::metadata_agent(agent.zookeeper_passwords(), &agent.digests()));
        let of_agent = SessionSettings { identity, ..settings.clone() };
        let agent = Session::connect(&of_agent, &clock).await.unwrap();
        bootstrap::create_base_nodes(&agent).await.unwrap();
        let mut model = Nodes { lock: Some(1), ..Nodes::default() };
        model.set_agent(0, 1);
        Self {
            settings,
            keys: keys.master,
            clock,
            model,
            lock,
            term: 1,
            deposed: None,
            agent,
            engines: BTreeMap::new(),
            seen: BTreeMap::new(),
            alter: None,
            done: BTreeMap::new(),
        }
    }

    /// A lock and its number: that of the master, or rarely of the one before.
    fn acting<'a>(lock: &'a Lock, deposed: Option<&'a Lock>, term: u64, rng: &mut Rng) -> (&'a Lock, u64) {
        match deposed.filter(|_| rng.percent(DEPOSED)) {
            Some(deposed) => (deposed, term - 1),
            None => (lock, term),
        }
    }

    fn count(&mut self, call: &'static str, model: Ended, server: Ended) {
        assert_eq!(model, server, "{call}");
        self.done.entry(call).or_default()[usize::from(model != Ended::Done)] += 1;
    }

    /// Another master is elected.
    async fn elect(&mut self) {
        self.lock.session().close().await;
        let next = Election::new(self.settings.clone(), self.clock.clone(), "next").win().await.unwrap();
        self.deposed = Some(std::mem::replace(&mut self.lock, next));
        self.term += 1;
        self.model.lock = Some(self.term);
    }

    /// Reads a permit, unless an older reading is to be used.
    async fn read(&mut self, engine: &EngineName, rng: &mut Rng) {
        if self.seen.contains_key(engine) && rng.percent(OUTDATED) {
            return;
        }
        self.lock.session().sync().await.unwrap();
        let server = permits::read(self.lock.session(), engine).await.unwrap();
        match server.zip(self.model.permits.get(engine).map(|node| PermitNode::clone(node))) {
            Some(both) => drop(self.seen.insert(engine.clone(), both)),
            None => drop(self.seen.remove(engine)),
        }
    }

    async fn create_permit(&mut self, engine: &EngineName, rng: &mut Rng) {
        let permit = Permit {
            tenant: TenantName::new("t_1").unwrap(),
            pool: PoolName::new("rp_1").unwrap(),
            unit: UnitName::new("uc_1").unwrap(),
            uid: rng.percent(50).then(|| uid(rng)),
            sessions: None,
            owner: None,
        };
        let (lock, term) = Self::acting(&self.lock, self.deposed.as_ref(), self.term, rng);
        let server = permits::create(lock, engine, &permit).await;
        let model = self.model.create_permit(term, engine, permit);
        self.count("create permit", of_model(&model), of_server(&server));
    }

    async fn change_permit(&mut self, engine: &EngineName, rng: &mut Rng) {
        self.read(engine, rng).await;
        let Some((of_server_seen, of_model_seen)) = self.seen.get(engine).cloned() else { return };
        let (uid, sessions) = (uid(rng), rng.percent(50).then_some(3));
        let (lock, term) = Self::acting(&self.lock, self.deposed.as_ref(), self.term, rng);
        let is_uid = rng.percent(60);
        let server = if is_uid {
            permits::set_uid(lock, &of_server_seen, &uid).await
        } else {
            permits::set_sessions(lock, &of_server_seen, sessions).await
        };
        // Both write what was read with the change.
        let content = of_model_seen.content.clone().unwrap();
        let content = if is_uid { Permit { uid: Some(uid), ..content } } else { Permit { sessions, ..content } };
        let model = self.model.change_permit(term, engine, Some(of_model_seen.version), |permit| *permit = content);
        self.count("change permit", of_model(&model), of_server(&server));
    }

    async fn drain(&mut self, engine: &EngineName, rng: &mut Rng) {
        self.read(engine, rng).await;
        let seen = self.seen.get(engine).cloned().filter(|_| rng.percent(85));
        let (server_seen, model_seen) = seen.unzip();
        let successor = rng.percent(50).then(|| self::engine(rng.index(ENGINES)));
        let order = DrainOrder {
            uid: model_seen.as_ref().and_then(|seen| seen.uid().map(str::to_owned)),
            grace_ms: 1_000,
            reason: "restarted".to_owned(),
            namespace: None,
        };
        let (lock, term) = Self::acting(&self.lock, self.deposed.as_ref(), self.term, rng);
        let server = drains::drain(lock, engine, server_seen.as_ref(), successor.as_ref(), &order).await;
        let model = self.model.drain(term, engine, model_seen.as_ref(), successor.as_ref(), order);
        self.count("drain", of_model(&model), of_server(&server));
    }

    async fn delete_permit(&mut self, engine: &EngineName, rng: &mut Rng) {
        self.read(engine, rng).await;
        let Some((server_seen, model_seen)) = self.seen.get(engine).cloned() else { return };
        let (lock, term) = Self::acting(&self.lock, self.deposed.as_ref(), self.term, rng);
        let server = permits::delete(lock, &server_seen).await;
        let model = self.model.delete_permit(term, &model_seen);
        self.count("delete permit", of_model(&model), of_server(&server));
    }

    async fn remove_drain(&mut self, engine: &EngineName, rng: &mut Rng) {
        let (lock, term) = Self::acting(&self.lock, self.deposed.as_ref(), self.term, rng);
        let server = drains::remove(lock, engine).await;
        let model = self.model.remove_drain(term, engine);
        self.count("remove drain order", of_model(&model), of_server(&server));
    }

    /// An engine with its own session and any uid tries to register.
    async fn register(&mut self, engine: &EngineName, rng: &mut Rng) {
        let uid = uid(rng);
        let keys = self.keys.get().engine(engine);
        let credential = EngineCredential::new(engine.clone(), keys.zookeeper_password, keys.readers);
        let identity = Identity::fixed(Logins::engine(&credential));
        let settings = SessionSettings { identity, ..self.settings.clone() };
        let session = Session::connect(&settings, &self.clock).await.unwrap();
        let own = registry::read_own(&session, engine).await.unwrap();
        let registration = Registration {
            address: "127.0.0.1:1".to_owned(),
            capacity: 1,
            config: String::new(),
            version: "1".to_owned(),
            uid: uid.clone(),
            catalog: None,
            owner: None,
            keys: Vec::new(),
            tls: None,
        };
        let server = match &own.permit {
            Some(permit) => registry::register(&session, permit, &registration).await.is_ok(),
            None => false,
        };
        let model = self.model.register(engine, &uid);
        let ended = |is_registered: bool| if is_registered { Ended::Done } else { Ended::Moved };
        self.count("register", ended(model), ended(server));
        if server {
            self.engines.insert(engine.clone(), session);
        } else {
            session.close().await;
        }
    }

    /// The session of an engine ends.
    async fn expire(&mut self, engine: &EngineName) {
        let Some(session) = self.engines.remove(engine) else { return };
        session.close().await;
        self.model.expire(engine);
        self.count("expire", Ended::Done, Ended::Done);
    }

    async fn create_alter_node(&mut self, call: u64) {
        let alteration = Alteration {
            id: RequestId::new(format!("alteration-{call}")).unwrap(),
            object: ObjectRef { kind: ObjectKind::Tenant, name: "t_1".to_owned() },
            base_generation: Generation(1),
            old: None,
            statement: "ALTER".to_owned(),
            by: "admin".to_owned(),
            source: Source::default(),
            agent: "agent-1".to_owned(),
            requested_at_ms: 1,
        };
        let server = alter_node::create(&self.agent, &alteration).await.unwrap() == CreateOutcome::Created;
        let model = self.model.create_alter(alteration, 0);
        let ended = |is_created: bool| if is_created { Ended::Done } else { Ended::Moved };
        self.count("create alter node", ended(model), ended(server));
    }

    async fn delete_alter_node(&mut self, rng: &mut Rng) {
        if self.alter.is_none() || !rng.percent(OUTDATED) {
            let server = alter_node::read(self.lock.session()).await.unwrap();
            self.alter = server.zip(self.model.alter.clone());
        }
        let Some((server_seen, model_seen)) = self.alter.clone() else { return };
        let (lock, term) = Self::acting(&self.lock, self.deposed.as_ref(), self.term, rng);
        let server = alter_node::delete(lock, &server_seen).await;
        let model = self.model.delete_alter(term, &model_seen);
        self.count("delete alter node", of_model(&model), of_server(&server));
    }

    /// Compares everything that is read.
    async fn compare(&self) {
        let server = observe(self.lock.session()).await.unwrap();
        let model = self.model.observe();
        let permit = |node: &PermitNode| {
            let registered = node.registration.as_ref().map(|one| one.content.clone().unwrap().uid);
            (node.engine.clone(), node.content.clone(), node.version, registered, node.answered, node.strays)
        };
        let all = |nodes: &[Shared<PermitNode>]| nodes.iter().map(|node| permit(node)).collect::<Vec<_>>();
        assert_eq!(all(&server.permits), all(&model.permits));
        let orders = |nodes: &[coordination::DrainOrderNode]| {
            nodes.iter().map(|node| (node.engine.clone(), node.content.clone())).collect::<Vec<_>>()
        };
        assert_eq!(orders(&server.drains), orders(&model.drains));
        let alter = |node: Option<&AlterNode>| {
            node.map(|node| {
                (node.content.clone(), node.children.iter().map(|child| child.id.clone()).collect::<Vec<_>>())
            })
        };
        assert_eq!(alter(server.alter.as_ref()), alter(model.alter.as_ref()));
    }
}

fn uid(rng: &mut Rng) -> String {
    format!("uid-{}", rng.below(2))
}

async fn compare_random_calls(seed: u64, mutant: Option<Mutant>) -> BTreeMap<&'static str, [usize; 2]> {
    println!("seed {seed}; again: EH_SIMULATION_SEED={seed} cargo test -p simulation --test nodes -- --nocapture");
    let server = Server::start(Config::default()).await.unwrap();
    let mut pair = Pair::new(&server).await;
    pair.model.mutant = mutant;
    let mut rng = Rng::new(seed);
    for call in 0..CALLS {
        let engine = engine(rng.index(ENGINES));
        match rng.below(19) {
            0..=3 => pair.create_permit(&engine, &mut rng).await,
            4..=6 => pair.change_permit(&engine, &mut rng).await,
            7 | 8 => pair.drain(&engine, &mut rng).await,
            9 => pair.delete_permit(&engine, &mut rng).await,
            10 | 11 => pair.remove_drain(&engine, &mut rng).await,
            12..=14 => pair.register(&engine, &mut rng).await,
            15 => pair.expire(&engine).await,
            16 => pair.create_alter_node(call).await,
            17 => pair.delete_alter_node(&mut rng).await,
            _ if rng.percent(30) => pair.elect().await,
            _ => {}
        }
        pair.compare().await;
    }
    server.shutdown().await;
    pair.done
}

#[test]
fn the_model_of_the_nodes_decides_like_zookeeper() {
    let fixed = std::env::var("EH_SIMULATION_SEED").ok().map(|seed| seed.parse().unwrap());
    #[allow(clippy::disallowed_methods, reason = "the seed is different each time, and is printed")]
    let seed = fixed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs());
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let done = runtime.block_on(async {
        tokio::time::timeout(Duration::from_mins(2), compare_random_calls(seed, None)).await.unwrap()
    });
    println!("{done:?}");
    let kinds = ["create permit", "change permit", "drain", "delete permit", "remove drain order", "register"];
    for kind in kinds.into_iter().chain(["create alter node", "delete alter node"]) {
        let [allowed, refused] = done.get(kind).copied().unwrap_or_default();
        assert!(allowed > 0 && refused > 0, "{kind}: {allowed} times done, {refused} times refused");
    }
}

#[test]
fn a_model_without_one_of_its_checks_differs_from_zookeeper() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mutants = [
        Mutant::NoMark,
        Mutant::DrainIsExpiry,
        Mutant::SuccessorUnchecked,
        Mutant::DrainInCalls,
        Mutant::PermitAdmitsAnyUid,
        Mutant::DeletedByPath,
    ];
    for mutant in mutants {
        let compared = runtime.block_on(async { tokio::spawn(compare_random_calls(1, Some(mutant))).await });
        assert!(compared.is_err_and(|error| error.is_panic()), "{mutant:?} is not noticed");
    }
}
