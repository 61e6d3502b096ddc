#!/usr/bin/env python3
"""The main job, running for real and explained: one Crossway server configures a real Envoy mesh gateway.

Needs target/release/crossway and the peers envoy and grpcurl, which `make demo` provides. Everything lives in one
temporary folder and on free ports of 127.0.0.1, and is removed at the end. The exit code is 0 only if every step
showed what it should. With --keep it stays up and prints what to try.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CROSSWAY = os.environ.get("CROSSWAY_BIN", os.path.join(ROOT, "target/release/crossway"))
PEERS = os.environ.get("CROSSWAY_PEERS", os.path.join(ROOT, "target/peers"))
HOST = "127.0.0.1"
GATEWAY, GATEWAY_NODE = "mesh-gateway", "gateway-1"
LIVE_LIMIT = 1.0  # seconds from a change to Envoy
COLOR = sys.stdout.isatty()


class Failed(Exception):
    """A step did not show what it should."""


# --- telling -----------------------------------------------------------------------------------------------------

results = []


def paint(code, text):
    return f"\033[{code}m{text}\033[0m" if COLOR else text


def say(text=""):
    print(text, flush=True)


def title(text):
    title.number += 1
    say()
    say(paint("1;36", f"{title.number}. {text}"))


title.number = 0


def command(args):
    shown = [short(str(a)) for a in args]
    say(paint("2", "   $ " + " ".join(f"'{a}'" if re.search(r"[\s{}*]", a) else a for a in shown)))


def short(text):
    text = text.replace(CROSSWAY, "crossway").replace(PEERS + "/", "").replace(ROOT + "/", "")
    return text.replace(folder + "/", "") if folder else text


def show(text, limit=14):
    lines = text.rstrip().splitlines()
    for line in lines[:limit]:
        say("     " + line[:150])
    if len(lines) > limit:
        say(f"     ... {len(lines) - limit} lines more")


def check(what, ok, detail=""):
    results.append((what, bool(ok), detail))
    mark = paint("32", "ok  ") if ok else paint("31", "FAIL")
    say(f"   {mark} {what}" + (f" ({detail})" if detail else ""))
    return ok


# --- running -----------------------------------------------------------------------------------------------------

folder = None
children = []


def free_ports(count):
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def start(name, args, **env):
    command(args)
    log = open(os.path.join(folder, name + ".log"), "wb")
    child = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **env}, cwd=folder)
    children.append((name, child))
    return child


def log_of(name):
    with open(os.path.join(folder, name + ".log"), errors="replace") as file:
        return file.read()


def run(args, quiet=False, may_fail=False):
    if not quiet:
        command(args)
    done = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, cwd=folder)
    if done.returncode != 0 and not may_fail:
        raise Failed(f"{short(' '.join(args))}: exit code {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done


def stop_all():
    for _, child in reversed(children):
        if child.poll() is None:
            child.terminate()
    for _, child in reversed(children):
        try:
            child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def get(url, timeout=5):
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        return answer.read().decode()


def get_json(url):
    return json.loads(get(url))


def until(what, probe, limit, pause=0.02):
    """Waits for a true result of `probe` and gives it with the seconds it took."""
    begin = time.monotonic()
    error = None
    while time.monotonic() - begin < limit:
        for name, child in children:
            if child.poll() is not None:
                raise Failed(f"{name} ended with {child.returncode}:\n" + "\n".join(log_of(name).splitlines()[-8:]))
        try:
            value = probe()
            if value:
                return value, time.monotonic() - begin
        except (OSError, ValueError, urllib.error.URLError) as caught:
            error = caught
        time.sleep(pause)
    raise Failed(f"{what}: not within {limit} s" + (f" ({error})" if error else ""))


def is_open(connection):
    """Whether nobody has closed `connection`: reading it finds neither an end nor an error, just nothing."""
    connection.settimeout(0.2)
    try:
        return len(connection.recv(1)) > 0
    except TimeoutError:
        return True
    except OSError:
        return False


# --- the pieces --------------------------------------------------------------------------------------------------


class Demo:
    def __init__(self):
        names = ("http", "grpc", "grpc_tls", "rpc", "serf_lan", "serf_wan", "lan", "wan", "admin")
        self.port = dict(zip(names, free_ports(len(names))))
        self.http = f"http://{HOST}:{self.port['http']}"
        self.admin = f"http://{HOST}:{self.port['admin']}"

    def path(self, name):
        return os.path.join(folder, name)

    # Certificates and the server.

    def certificates(self):
        title("Certificates from our own command line: one CA, a server in dc1, a server in dc2")
        run([CROSSWAY, "tls", "ca", "create"])
        for dc, node in (("dc1", "n1"), ("dc2", "n2")):
            out = run([CROSSWAY, "tls", "cert", "create", "-server", "-dc", dc, "-node", node])
            show(out.stdout, 6)
        key = self.path("dc1-server-consul-0-key.pem")
        mode = os.stat(key).st_mode & 0o777
        check("private keys are readable by their owner only", mode == 0o600, f"mode {mode:04o}")

    def server(self):
        title("One server, n1 in dc1: catalog, certificate authority, RPC with mutual TLS, and xDS for gateways")
        p = self.port
        config = f"""\
datacenter = "dc1"
node_name  = "n1"
server     = true
bootstrap  = true
data_dir   = "{self.path('data')}"
bind_addr  = "{HOST}"
ports {{ http = {p['http']}, grpc = {p['grpc']}, grpc_tls = {p['grpc_tls']}, server = {p['rpc']}, serf_lan = {p['serf_lan']}, serf_wan = {p['serf_wan']}, dns = -1 }}
connect {{ enabled = true, enable_mesh_gateway_wan_federation = true }}
ca_file    = "{self.path('consul-agent-ca.pem')}"
cert_file  = "{self.path('dc1-server-consul-0.pem')}"
key_file   = "{self.path('dc1-server-consul-0-key.pem')}"
verify_incoming_rpc    = true
verify_outgoing        = true
verify_server_hostname = true
"""
        with open(self.path("server.hcl"), "w") as file:
            file.write(config)
        show(short(config), 20)
        checked = run([CROSSWAY, "validate", self.path("server.hcl")])
        show(checked.stdout, 3)
        begin = time.monotonic()
        start("server", [CROSSWAY, "agent", "-config-file", self.path("server.hcl")])
        leader, _ = until("a leader", lambda: get_json(self.http + "/v1/status/leader"), 30)
        check("the server is up and leads", leader, f"{time.monotonic() - begin:.2f} s, leader {leader}")

    # The gateway.

    def gateway(self):
        title("A real Envoy as mesh gateway: one command registers it, writes its bootstrap and becomes Envoy")
        envoy = os.path.join(PEERS, "envoy")
        p = self.port
        begin = time.monotonic()
        start("gateway", [
            CROSSWAY, "connect", "envoy", "-gateway=mesh", "-register", "-expose-servers",
            "-http-addr", f"{HOST}:{p['http']}", "-node-name", GATEWAY_NODE,
            "-address", f"{HOST}:{p['lan']}", "-wan-address", f"{HOST}:{p['wan']}",
            "-grpc-ca-file", self.path("consul-agent-ca.pem"),
            "-admin-bind", f"{HOST}:{p['admin']}", "-envoy-binary", envoy,
            "--", "--concurrency", "2", "--log-level", "warning",
        ])
        until("Envoy's listeners", lambda: len(self.listeners()) == 2, 60)
        check("Envoy runs with the listeners that the server sent", True, f"{time.monotonic() - begin:.2f} s after the command")
        show(log_of("gateway"), 4)
        tls = get(self.admin + "/stats?filter=^cluster.local_agent.ssl.handshake$")
        check("its xDS stream is encrypted, with the server's certificate checked", int(tls.rsplit(":", 1)[1]) > 0, tls.strip())
        version = re.search(r"/(\d+\.\d+\.\d+)/", run([envoy, "--version"], quiet=True).stdout)
        check("it is a real Envoy", version, version and version.group(1))

        def passing():
            rows = get_json(f"{self.http}/v1/health/service/{GATEWAY}?passing")
            return rows and rows[0]["Checks"][0]

        health, took = until("a passing check", passing, 30)
        say(f"   The servers run its check themselves, no agent is needed: {health['Output'] or health['Status']}")
        check("the catalog shows the gateway as healthy", True, f"{took:.2f} s later")

    def clusters(self):
        """Envoy's dynamic clusters with the addresses of their endpoints."""
        found = {}
        for cluster in get_json(self.admin + "/clusters?format=json").get("cluster_statuses", []):
            if not cluster.get("added_via_api"):
                continue
            addresses = [h["address"]["socket_address"] for h in cluster.get("host_statuses", [])]
            found[cluster["name"]] = sorted(f"{a['address']}:{a['port_value']}" for a in addresses)
        return found

    def listeners(self):
        """Envoy's active listeners: name -> list of (server names, where to)."""
        dump = get_json(self.admin + "/config_dump?resource=dynamic_listeners")
        found = {}
        for item in dump.get("configs", []):
            listener = item.get("active_state", {}).get("listener")
            if not listener:
                continue
            chains = []
            for chain in listener.get("filter_chains", []):
                filters = [f["typed_config"] for f in chain["filters"]]
                by_sni = any(f["@type"].endswith("SniCluster") for f in filters)
                where = "the cluster named by the SNI" if by_sni else filters[-1].get("cluster", "")
                chains.append((chain.get("filter_chain_match", {}).get("server_names", []), where))
            found[item["name"]] = chains
        return found

    def show_envoy(self):
        title("What Envoy has now, from its own admin interface")
        # The trust domain is a UUID and the same everywhere: TRUST makes the lines readable.
        trust = get_json(self.http + "/v1/connect/ca/roots")["TrustDomain"]
        brief = lambda text: text.replace(trust, "TRUST")
        say(f"   Clusters and their endpoints (TRUST is the trust domain {trust}):")
        show("\n".join(f"{brief(name):28} {', '.join(at)}" for name, at in sorted(self.clusters().items())))
        name, chains = sorted(self.listeners().items())[0]
        say(f"   Filter chains of the listener {name}, SNI -> cluster:")
        show("\n".join(f"{brief(' '.join(sni)):42} -> {brief(to)}" for sni, to in chains))

    # RPC.

    def rpc(self, method, body, port="rpc", sni="n1.server.dc1.consul", dc="dc2", **options):
        args = [
            CROSSWAY, "rpc", "-addr", f"{HOST}:{self.port[port]}", "-sni", sni,
            "-ca-file", self.path("consul-agent-ca.pem"),
            "-client-cert", self.path(f"{dc}-server-consul-0.pem"),
            "-client-key", self.path(f"{dc}-server-consul-0-key.pem"),
            method, json.dumps(body),
        ]
        return run(args, **options)

    def record(self, dc, ports, op="upsert"):
        gateways = [{
            "Node": {"Node": f"{dc}-gw{i}", "Address": HOST, "Datacenter": dc},
            "Service": {
                "Kind": GATEWAY, "ID": GATEWAY, "Service": GATEWAY, "Address": HOST, "Port": port,
                "TaggedAddresses": {"wan": {"Address": HOST, "Port": port}},
                "Meta": {"consul-wan-federation": "1"},
            },
            "Checks": [],
        } for i, port in enumerate(ports, 1)]
        return {"Datacenter": "dc1", "Op": op, "State": {"Datacenter": dc, "MeshGateways": gateways}}

    def apply(self, dc, ports, op="upsert", quiet=True):
        return self.rpc("FederationState.Apply", self.record(dc, ports, op), dc="dc2" if dc == "dc2" else "dc1", quiet=quiet)

    def second_datacenter(self):
        title("A second datacenter: dc2's server stores where dc2's gateway is, over RPC with its own certificate")
        self.dc2 = RemoteGateway()
        out = self.apply("dc2", [self.dc2.port], quiet=False)
        show(out.stdout, 3)
        until("dc2 at Envoy", lambda: self.clusters().get("server.dc2.consul"), 10, 0.005)
        row = get_json(self.http + "/v1/internal/federation-state/dc2")["State"]
        say(f"   GET /v1/internal/federation-state/dc2: {len(row['MeshGateways'])} gateway, stored at index {row['ModifyIndex']}")
        check("Envoy routes to dc2's gateway", self.clusters()["server.dc2.consul"] == [f"{HOST}:{self.dc2.port}"])

    def through_the_gateway(self):
        title("RPC through the gateway: TLS from end to end, routed by nothing but the SNI")
        out = self.rpc("Status.Leader", {"Datacenter": "dc1"}, port="wan")
        show(out.stdout, 4)
        check("n1.server.dc1.consul answers through Envoy", str(self.port["rpc"]) in out.stdout)
        out = self.rpc("Catalog.ListNodes", {"Datacenter": "dc1"}, port="wan", sni="server.dc1.consul")
        nodes = [node["Node"] for node in json.loads(out.stdout)["Nodes"]]
        check("server.dc1.consul reaches a server too", "n1" in nodes, "catalog nodes: " + ", ".join(nodes))
        for sni, why in (("n9.server.dc1.consul", "an unknown server"), ("local_agent", "a static cluster of the bootstrap")):
            failed = self.rpc("Status.Leader", {"Datacenter": "dc1"}, port="wan", sni=sni, quiet=True, may_fail=True)
            check(f"{sni} is refused", failed.returncode != 0, why)
        self.rpc("Status.Leader", {"Datacenter": "dc2"}, port="wan", sni="n2.server.dc2.consul", quiet=True, may_fail=True)
        check("n2.server.dc2.consul goes out to dc2's gateway", "n2.server.dc2.consul" in self.dc2.names, "it saw the same SNI, still encrypted")

    def live_changes(self):
        title(f"Live changes: each must be at Envoy within {LIVE_LIMIT:.0f} second, and open connections stay")
        ports = free_ports(2)
        first, second = f"{HOST}:{self.dc2.port}", f"{HOST}:{ports[0]}"

        def dc3_chain():
            chains = next(iter(self.listeners().values()))
            return any("*.server.dc3.consul" in names for names, _ in chains)

        def change(what, action, seen):
            begin = time.monotonic()
            action()
            until(what, seen, 10, 0.005)
            took = time.monotonic() - begin
            check(what, took < LIVE_LIMIT, f"{took * 1000:.0f} ms from the start of the command to Envoy")

        held = self.connection()
        bulk = "server.dc2.consul"
        change("dc2 gets a second gateway", lambda: self.apply("dc2", [self.dc2.port, ports[0]]),
               lambda: self.clusters()[bulk] == sorted([first, second]))
        change("dc2's second gateway goes away", lambda: self.apply("dc2", [self.dc2.port]),
               lambda: self.clusters()[bulk] == [first])
        change("a third datacenter appears", lambda: self.apply("dc3", [ports[1]]),
               lambda: "server.dc3.consul" in self.clusters() and dc3_chain())
        change("the third datacenter vanishes", lambda: self.apply("dc3", [], "delete"),
               lambda: "server.dc3.consul" not in self.clusters() and not dc3_chain())
        stats = get(self.admin + "/stats?filter=listener_manager.listener_in_place_updated")
        updated = int(stats.rsplit(":", 1)[1])
        check("listeners were changed in place", updated > 0, stats.strip())
        check("a TLS connection through the gateway lived through all of it", is_open(held))
        held.close()

    def connection(self):
        """A TLS connection to the server's RPC port, through the gateway."""
        context = ssl.create_default_context(cafile=self.path("consul-agent-ca.pem"))
        context.load_cert_chain(self.path("dc2-server-consul-0.pem"), self.path("dc2-server-consul-0-key.pem"))
        context.set_alpn_protocols(["consul/rpc-multi"])
        plain = socket.create_connection((HOST, self.port["wan"]), timeout=5)
        return context.wrap_socket(plain, server_hostname="n1.server.dc1.consul")

    # Debugging.

    def grpcurl(self):
        title("Looking inside with grpcurl: the services, and a listener decoded")
        tool = os.path.join(PEERS, "grpcurl")
        address = f"{HOST}:{self.port['grpc']}"
        listed = run([tool, "-plaintext", address, "list"])
        show(listed.stdout)
        check("xDS, health and reflection are offered", "envoy.service.discovery.v3.AggregatedDiscoveryService" in listed.stdout)
        request = {
            "node": {"id": GATEWAY, "metadata": {"node_name": GATEWAY_NODE}},
            "type_url": "type.googleapis.com/envoy.config.listener.v3.Listener",
        }
        answer = run([
            tool, "-plaintext", "-max-time", "2", "-d", json.dumps(request), address,
            "envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
        ], may_fail=True)  # The stream has no end of its own: -max-time ends it.
        message, _ = json.JSONDecoder().raw_decode(answer.stdout.lstrip() or "{}")
        resources = message.get("resources", [])
        listener = resources[0]["resource"] if resources else {}
        proxy = [f["typedConfig"] for c in listener.get("filterChains", []) for f in c["filters"]]
        show(json.dumps({k: listener.get(k) for k in ("@type", "name", "address")}, indent=2), 12)
        if proxy:
            show("first filter of the first chain: " + json.dumps(proxy[0]), 1)
        check("grpcurl decodes a Listener down to its filters", any("TcpProxy" in p["@type"] for p in proxy))

    def keep(self):
        p = self.port
        say()
        say(paint("1", "Still running; Ctrl-C ends it. Try:"))
        say(f"   export CONSUL_HTTP_ADDR={HOST}:{p['http']}; cd {folder}")
        say(f"   curl -s {self.http}/v1/internal/federation-states | python3 -m json.tool")
        say(f"   curl -s {self.http}/v1/health/service/{GATEWAY}?passing")
        say(f"   curl -s '{self.admin}/config_dump?resource=dynamic_listeners'")
        say(f"   {os.path.join(PEERS, 'grpcurl')} -plaintext {HOST}:{p['grpc']} list")
        say(f"   {CROSSWAY} rpc -addr {HOST}:{p['wan']} -sni n1.server.dc1.consul -ca-file consul-agent-ca.pem \\")
        say("       -client-cert dc2-server-consul-0.pem -client-key dc2-server-consul-0-key.pem Status.Leader '{\"Datacenter\": \"dc1\"}'")
        say(f"   {CROSSWAY} config list -kind proxy-defaults")
        say(f"   tail -f {self.path('server.log')}")
        while all(child.poll() is None for _, child in children):
            time.sleep(0.5)
        raise Failed("a program ended: " + ", ".join(n for n, c in children if c.poll() is not None))


class RemoteGateway:
    """Stands for dc2's gateway: accepts, notes the SNI of the ClientHello, and hangs up."""

    def __init__(self):
        self.names = []
        self.socket = socket.create_server((HOST, 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.socket.accept()
            with connection:
                connection.settimeout(5)
                try:
                    hello = connection.recv(65536)
                except OSError:
                    continue
                # In the ClientHello the name stands as plain text, in an extension of type 0.
                self.names += [n.decode() for n in re.findall(rb"[a-z0-9.-]+\.consul", hello)]


def main():
    global folder
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="stay up at the end and print what to try")
    args = parser.parse_args()
    for program in (CROSSWAY, os.path.join(PEERS, "envoy"), os.path.join(PEERS, "grpcurl")):
        if not os.access(program, os.X_OK):
            sys.exit(f"{program} is not there: run this as `make demo`")

    def interrupted(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGHUP, interrupted)
    folder = tempfile.mkdtemp(prefix="crossway-demo-")
    begin = time.monotonic()
    done = False
    try:
        demo = Demo()
        say(paint("1", "Crossway: one server configures a real Envoy mesh gateway"))
        say(f"Everything is in {folder} and on free ports of {HOST}.")
        demo.certificates()
        demo.server()
        demo.gateway()
        demo.second_datacenter()
        demo.show_envoy()
        demo.through_the_gateway()
        demo.live_changes()
        demo.grpcurl()
        done = True
        summary(begin)
        if args.keep:
            demo.keep()
    except Failed as failure:
        check("the demo runs to its end", False, str(failure))
        for name, _ in children:
            say(f"   last lines of {name}.log:")
            show("\n".join(log_of(name).splitlines()[-12:]))
        summary(begin)
    except KeyboardInterrupt:
        say("\nInterrupted.")
    finally:
        stop_all()
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if done and all(ok for _, ok, _ in results) else 1


def summary(begin):
    say()
    say(paint("1", "Summary"))
    for what, ok, detail in results:
        mark = paint("32", "ok  ") if ok else paint("31", "FAIL")
        say(f"   {mark} {what}" + (f" ({detail.splitlines()[0]})" if detail else ""))
    failed = sum(not ok for _, ok, _ in results)
    verdict = paint("32", "all as it should be") if not failed else paint("31", f"{failed} FAILED")
    say(f"   {len(results)} checks, {verdict}, {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
