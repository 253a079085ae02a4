# Stands in for OpenEmbedded's systemd.bbclass, which only reads what the recipe sets.
