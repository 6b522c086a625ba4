//! A real slapd with a directory of its own, on free ports of loopback.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tests::certificate::Certificate;

const READY: Duration = Duration::from_secs(20);

pub const ROOT: &str = "cn=root,dc=x";
pub const READER: &str = "cn=reader,dc=x";
pub const PASSWORD: &str = "a password of the directory";

const ENTRIES: &str = "dn: dc=x
objectClass: dcObject
objectClass: organization
dc: x
o: x

dn: cn=reader,dc=x
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: reader
userPassword: a password of the directory

dn: ou=people,dc=x
objectClass: organizationalUnit
ou: people

dn: ou=groups,dc=x
objectClass: organizationalUnit
ou: groups

dn: uid=alice,ou=people,dc=x
objectClass: inetOrgPerson
uid: alice
cn: Alice
sn: A
employeeNumber: 7
userPassword: alice's

dn: uid=bob,ou=people,dc=x
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: B
employeeNumber: 8
userPassword: bob's

dn: cn=twin,ou=people,dc=x
objectClass: inetOrgPerson
uid: bob2
cn: twin
sn: T
employeeNumber: 8
userPassword: bob's

dn: cn=analysts,ou=groups,dc=x
objectClass: groupOfNames
cn: analysts
member: uid=alice,ou=people,dc=x

dn: cn=data team,ou=groups,dc=x
objectClass: groupOfNames
cn: data team
member: uid=alice,ou=people,dc=x

dn: cn=no\\, group of a list,ou=groups,dc=x
objectClass: groupOfNames
cn: no, group of a list
member: uid=alice,ou=people,dc=x
";

pub struct Slapd {
    folder: TempDir,
    pub port: u16,
    pub tls_port: u16,
    pub certificate: Certificate,
    process: Option<Child>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Slapd {
    /// A directory with the entries above.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificate = Certificate::create(folder.path(), "directory").unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        let mut slapd = Self { port: free_port(), tls_port: free_port(), certificate, folder, process: None };
        slapd.write_configuration();
        slapd.resume().await;
        let ldif = slapd.folder.path().join("entries.ldif");
        fs::write(&ldif, ENTRIES).unwrap();
        slapd.tool("ldapadd", &["-f", ldif.to_str().unwrap()]);
        slapd
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_configuration(&self) {
        let (key, certificate) = (self.certificate.key.display(), self.certificate.certificate.display());
        let data = self.path("data");
        let include = |schema| format!("include /etc/ldap/schema/{schema}.schema\n");
        let text = format!(
            "{}modulepath /usr/lib/ldap\nmoduleload back_mdb\nmoduleload memberof\n\
             TLSCACertificateFile {certificate}\nTLSCertificateFile {certificate}\nTLSCertificateKeyFile {key}\n\
             database mdb\nsuffix \"dc=x\"\nrootdn \"{ROOT}\"\nrootpw \"{PASSWORD}\"\ndirectory {}\nmaxsize 10485760\n\
             overlay memberof\n\
             access to attrs=userPassword by anonymous auth by * none\n\
             access to * by dn=\"{READER}\" read by self read by anonymous auth by * none\n",
            ["core", "cosine", "inetorgperson"].map(include).concat(),
            data.display()
        );
        fs::write(self.path("slapd.conf"), text).unwrap();
    }

    pub fn url(&self) -> String {
        format!("ldap://127.0.0.1:{}", self.port)
    }

    pub fn tls_url(&self) -> String {
        format!("ldaps://localhost:{}", self.tls_port)
    }

    /// Starts it, with the data that it had.
    pub async fn resume(&mut self) {
        let listen = format!("ldap://127.0.0.1:{}/ ldaps://127.0.0.1:{}/", self.port, self.tls_port);
        let log = fs::File::create(self.path("log")).unwrap();
        let child = Command::new("/usr/sbin/slapd")
            .args(["-d", "stats", "-h", &listen, "-f"])
            .arg(self.path("slapd.conf"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("slapd cannot be run: tests/run installs it");
        self.process = Some(child);
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(begun.elapsed() < READY, "slapd does not listen:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// What it has logged since it was started: one line for each operation.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Changes entries, as the administrator of the directory.
    pub fn change(&self, ldif: &str) {
        let path = self.path("change.ldif");
        fs::File::create(&path).unwrap().write_all(ldif.as_bytes()).unwrap();
        self.tool("ldapmodify", &["-f", path.to_str().unwrap()]);
    }

    fn tool(&self, tool: &str, arguments: &[&str]) {
        let mut command = Command::new(tool);
        command.args(["-x", "-H", &self.url(), "-D", ROOT, "-w", PASSWORD]).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn ca(&self) -> &Path {
        &self.certificate.certificate
    }
}

impl Drop for Slapd {
    fn drop(&mut self) {
        self.kill();
    }
}
