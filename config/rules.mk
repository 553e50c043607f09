# What goes where on each kind of machine (config/install.sh). Units lie where systemd looks: PREFIX/lib/systemd/system
# for /usr and /usr/local, else /etc/systemd/system.

UNIT_DIR ?= $(if $(filter /usr /usr/local,$(PREFIX)),$(PREFIX)/lib,/etc)/systemd/system
install_kind = @B='$(B)' PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' UNIT_DIR='$(UNIT_DIR)' VERSION='$(VERSION)' sh config/install.sh

.PHONY: install-cluster install-node install-client
install-cluster: $(B)/bin/flyt-cluster-manager $(B)/lib/libflyt-store-mongodb.so $(B)/bin/flytctl
	$(install_kind) cluster
install-node: $(B)/bin/flyt-node-manager server
	$(install_kind) node
install-client: $(B)/bin/flyt-client-manager $(B)/bin/flytctl client
	$(install_kind) client
