# Controls a cluster with `make`; the target names are those of earlier cluster projects. Each target is a thin wrapper
# around `shoal`, which reads HOSTFILE, MODEL_DIR, API_PORT and all other settings from the environment, from
# `make NAME=value` and from .env; ARGS adds flags.

SHOAL := build/shoal
# hosts.json beside the Makefile, which `./launch.sh detect` writes, is used if nothing else names the hosts.
ifeq ($(HOSTFILE)$(WORKER_HOSTS)$(shell grep -sE '^[^\#]*(HOSTFILE|WORKER_HOSTS|WORKERS)=.' .env),)
ifneq ($(wildcard hosts.json),)
export HOSTFILE := hosts.json
endif
endif
CHAT  := {"messages": [{"role": "user", "content": "What is tensor parallelism?"}], "max_tokens": 64}
# The value of one setting: $(call setting,port)
setting = $$($(SHOAL) launch --print-config | sed -n 's/^$(1) = \([^ ]*\) .*/\1/p')
# The demo model, if no other is set.
or_demo = $$($(SHOAL) launch --print-config | grep -q '^model = [^ ]' || echo --model models/demo)

.PHONY: setup bootstrap verify cluster-info sync rdma-test rdma-quick rdma-verbose rdma-stress server server-bg \
        server-stop server-restart health models models-local models-check download chat-test queue dashboard metrics \
        status monitor logs version test loc bench kill-all fingerprint clean-all

setup: ## install the build dependencies, and build
	tools/setup.sh
	$(MAKE) program

bootstrap: program ## copy the sources to the hosts of HOSTFILE, or to REMOTE=HOST,HOST, and build there
	$(SHOAL) bootstrap $(REMOTE) $(ARGS)

verify: program ## check all hosts of HOSTFILE: ssh, versions, memory, links
	$(SHOAL) doctor $(ARGS)
cluster-info: program ## show all hosts of HOSTFILE side by side, and what differs
	$(SHOAL) hosts compare $(ARGS)

sync: program ## copy program and settings to the hosts of HOSTFILE, where missing or different
	$(SHOAL) launch --prepare $(ARGS)

# Over the backend of the hostfile, or of BACKEND=jaccl.
linktest = $(SHOAL) launch --job linktest $(if $(BACKEND),--backend $(BACKEND))
rdma-test: program ## test and time the links between the hosts, over the backend of HOSTFILE or BACKEND=jaccl
	$(linktest) $(ARGS)
rdma-quick: program ## the same as rdma-test, with fewer sizes and rounds
	$(linktest) --quick $(ARGS)
rdma-verbose: program ## the same as rdma-test, with the time of every round
	$(linktest) --verbose $(ARGS)
rdma-stress: program ## many operations of random sizes, then 100 large sums, all checked and timed
	$(linktest) --stress $(ARGS)

server: program ## serve on all hosts of HOSTFILE (without one: on this machine) until Ctrl-C
	$(SHOAL) launch $(ARGS)
server-bg: program ## the same as server, in the background
	$(SHOAL) launch --detach $(ARGS)
server-stop: program ## stop the cluster
	$(SHOAL) stop $(ARGS)
server-restart: program ## stop the cluster and launch it again, in the background
	$(SHOAL) restart $(ARGS)
kill-all: program ## stop everything launched from the state folder, even if that is lost, and nothing else
	$(SHOAL) stop $(ARGS)
status: program ## show ranks, hosts, processes, and the API's health
	$(SHOAL) status $(ARGS)
logs: program ## show the log of the ranks; ARGS=-f follows it
	$(SHOAL) logs $(ARGS)
monitor: program ## watch the server in the terminal
	$(SHOAL) monitor $(ARGS)

health: program ## show the API's health
	$(SHOAL) call /health $(ARGS)
models: program ## list the models that the API serves
	$(SHOAL) call /v1/models $(ARGS)
queue: program ## show the waiting requests
	$(SHOAL) call /queue $(ARGS)
metrics: program ## print the figures of the dashboard
	$(SHOAL) call /metrics/snapshot $(ARGS)
chat-test: program ## send the API a question
	$(SHOAL) call /v1/chat/completions '$(CHAT)' $(ARGS)
dashboard: program ## open the dashboard in BROWSER, or the desktop's; print its URL
	@url="http://$(call setting,host):$(call setting,port)/dashboard"; echo "$$url on the host of rank 0"; \
	for open in $(or $(BROWSER),xdg-open open); do \
	    if command -v $$open >/dev/null && [ -n "$(BROWSER)$$DISPLAY$$WAYLAND_DISPLAY" -o $$open = open ]; then \
	        $$open "$$url"; exit; fi; done; echo "no browser was found to open it: set BROWSER"

models-local: program ## list the models on this machine, in models/ and in the Hugging Face cache
	$(SHOAL) models --model-cache models $(ARGS)
models-check: program ## check that all hosts have the model and that it fits
	$(SHOAL) doctor $(or_demo) $(ARGS)
download: program ## download a model from the Hugging Face hub: MODEL=ORG/NAME, or the one that is set
	$(SHOAL) pull $(or $(MODEL),$(call setting,model)) $(ARGS)

fingerprint: program ## describe this host as JSON
	$(SHOAL) fingerprint $(ARGS)
version: program ## print the versions of program, system and kernel, here and on the hosts of HOSTFILE
	@$(SHOAL) --version
	@$(SHOAL) hosts compare $(ARGS)
bench: program ## measure tokens per second of a model, on all hosts of HOSTFILE (without one: on this machine)
	@if [ -n "$(call setting,hostfile)" ]; then set -x; $(SHOAL) launch --job bench $(ARGS); \
	else set -x; $(SHOAL) bench $(or_demo) $(ARGS); fi
test: check ## the same as check
loc: ## count the lines of source in each layer
	@for layer in src/*/; do printf '%-14s %6d\n' "$$layer" "$$(find "$$layer" -name '*.[ch]' -exec cat {} + | wc -l)"; done
clean-all: program ## remove build/, and what launch and bootstrap put on the hosts of HOSTFILE
	$(SHOAL) hosts clean $(ARGS)
	$(MAKE) clean
